/* What a target gives to the engine, and what the engine lends it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_INPUT_MAX  8192
#define FUZZ_MALLOC_MAX (1u << 16)

struct fuzz_target {
    const char *name;
    /* One input, in memory of exactly its size. Whatever is wrong is the sanitizers' to find, or abort()s. */
    void (*run)(const uint8_t *data, size_t size);
    /* Numbers that mean something in its inputs: magics, identifiers, sizes. */
    const uint64_t *words;
    size_t word_count;
};

extern const struct fuzz_target fuzz_targets[];
extern const size_t fuzz_target_count;

/* Takes an input apart, front to back; behind its end everything is zero. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* In place of malloc where the other side says how much: there is little memory, so as not to wait for it. */
void *fuzz_malloc(size_t size);
uint64_t fuzz_take(struct fuzz_input *input, size_t size);
/* At most so many bytes, into `to`; how many there were. */
size_t fuzz_take_bytes(struct fuzz_input *input, void *to, size_t size);
