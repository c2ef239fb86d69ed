/* The disk cache of parsed images and compiled kernels: $GPUFERRY_SIM_CACHE, else
 * $XDG_CACHE_HOME/gpuferry/ptx, else
 * ~/.cache/gpuferry/ptx, else a private folder under /tmp. Shared by processes; every file is checked when
 * read. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_blob {
    const uint8_t *data; /* 8-byte aligned */
    size_t size;
    void *memory; /* to be freed, or with mapped != 0 unmapped */
    size_t mapped;
};

enum { SIM_CACHE_NAME = 96 };
/* The name under which something made from what the key stands for is kept. */
void sim_cache_name(const uint8_t key[32], const char *suffix, char name[SIM_CACHE_NAME]);
bool sim_cache_load(const char *name, struct sim_blob *blob);
void sim_cache_store(const char *name, const void *data, size_t size);
void sim_blob_free(struct sim_blob *blob);
