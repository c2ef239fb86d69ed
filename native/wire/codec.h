/* What the generated codecs of nested types share (specs/WIRE.md 11): bytes that grow, bytes that are read with their
 * end in sight, and memory that lives as long as one call. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GF_BYTES_FIRST 512
#define GF_BYTES_MAX   (192u << 10) /* with what else a frame holds it stays below 256 KiB (WIRE.md 1) */
#define GF_ARENA_FIRST 1024

/* What a decoder returns besides a CUresult: the encoding itself is wrong, and the session over. */
#define GF_MALFORMED (-4)

/* Sizes saturate: one that overflowed is larger than anything there is, so whoever checks it refuses. */
static inline uint64_t gf_plus(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t gf_minus(uint64_t a, uint64_t b) {
    return a == UINT64_MAX ? a : a > b ? a - b : 0;
}

static inline uint64_t gf_times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline bool gf_all_zero(const void *bytes, size_t size) {
    const uint8_t *at = (const uint8_t *)bytes;
    for (size_t i = 0; i < size; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Bytes being written. Small ones need no memory of their own. */
struct gf_bytes {
    uint8_t *data;
    size_t size, room;
    bool failed; /* too many, or no memory for them */
    uint8_t first[GF_BYTES_FIRST];
};

static inline void gf_bytes_begin(struct gf_bytes *bytes) {
    bytes->data = bytes->first;
    bytes->size = 0;
    bytes->room = GF_BYTES_FIRST;
    bytes->failed = false;
}

static inline void gf_bytes_end(struct gf_bytes *bytes) {
    if (bytes->data != bytes->first) {
        free(bytes->data);
    }
}

/* Room for `count` times `size` more bytes, zeroed: where it begins, from `data`. */
static inline size_t gf_bytes_take(struct gf_bytes *bytes, uint64_t count, uint64_t size) {
    uint64_t wanted = gf_plus(bytes->size, gf_times(count, size));
    size_t at = bytes->size;
    if (bytes->failed || wanted > GF_BYTES_MAX) {
        bytes->failed = true;
        return at;
    }
    if (wanted > bytes->room) {
        size_t room = wanted > 2 * bytes->room ? (size_t)wanted : 2 * bytes->room;
        uint8_t *data = (uint8_t *)realloc(bytes->data == bytes->first ? NULL : bytes->data, room);
        if (data == NULL) {
            bytes->failed = true;
            return at;
        }
        if (bytes->data == bytes->first) {
            memcpy(data, bytes->first, bytes->size);
        }
        bytes->data = data;
        bytes->room = room;
    }
    memset(bytes->data + at, 0, (size_t)wanted - at);
    bytes->size = (size_t)wanted;
    return at;
}

/* False: there was no room. */
static inline bool gf_bytes_put(struct gf_bytes *bytes, const void *data, uint64_t count, uint64_t size) {
    size_t at = gf_bytes_take(bytes, count, size);
    if (!bytes->failed && bytes->size > at) {
        memcpy(bytes->data + at, data, bytes->size - at);
    }
    return !bytes->failed;
}

/* Memory of one call, given back at once. */
struct gf_arena_part {
    struct gf_arena_part *next;
};

struct gf_arena {
    size_t used;
    struct gf_arena_part *parts;
    uint8_t first[GF_ARENA_FIRST] __attribute__((aligned(16)));
};

static inline void gf_arena_begin(struct gf_arena *arena) {
    arena->used = 0;
    arena->parts = NULL;
}

static inline void gf_arena_end(struct gf_arena *arena) {
    while (arena->parts != NULL) {
        struct gf_arena_part *part = arena->parts;
        arena->parts = part->next;
        free(part);
    }
}

/* Zeroed, aligned for any type; NULL: there is no memory. */
static inline void *gf_arena_take(struct gf_arena *arena, size_t size) {
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded >= size && rounded <= GF_ARENA_FIRST - arena->used) {
        void *found = arena->first + arena->used;
        arena->used += rounded;
        return memset(found, 0, rounded);
    }
    struct gf_arena_part *part =
        rounded < size ? NULL : (struct gf_arena_part *)calloc(1, 16 + rounded);
    if (part == NULL) {
        return NULL;
    }
    part->next = arena->parts;
    arena->parts = part;
    return (uint8_t *)part + 16;
}

/* Bytes being read, and what a server does with what it finds in them. `why` is set with GF_MALFORMED. */
struct gf_decoder {
    const uint8_t *at;
    size_t left;
    const char *why;
    void *session, *frame;
    int (*handle)(struct gf_decoder *, unsigned kinds, uint64_t wire, void **driver);
    int (*name)(struct gf_decoder *, unsigned kinds, void *driver, uint64_t *wire);
    int (*address)(struct gf_decoder *, uint64_t address, uint64_t size, unsigned access);
    int (*device)(struct gf_decoder *, int wire, int *driver);
    struct gf_arena arena;
};

/* For `access` of a decoder. */
enum gf_access {
    GF_ACCESS_READ = 1,
    GF_ACCESS_WRITE = 2,
    GF_ACCESS_READWRITE = 3,
};

/* Everything else of a decoder is the caller's to set. */
static inline void gf_decoder_begin(struct gf_decoder *decoder, const void *data, size_t size) {
    decoder->at = (const uint8_t *)data;
    decoder->left = size;
    decoder->why = "";
    gf_arena_begin(&decoder->arena);
}

static inline void gf_decoder_end(struct gf_decoder *decoder) {
    gf_arena_end(&decoder->arena);
}

static inline int gf_decoder_fail(struct gf_decoder *decoder, const char *why) {
    decoder->why = why;
    return GF_MALFORMED;
}

/* The next bytes; NULL: there are not so many. */
static inline const void *gf_decoder_next(struct gf_decoder *decoder, uint64_t count, uint64_t size) {
    uint64_t wanted = gf_times(count, size);
    if (wanted > decoder->left) {
        return NULL;
    }
    const uint8_t *at = decoder->at;
    decoder->at += wanted;
    decoder->left -= (size_t)wanted;
    return at;
}

/* Nothing may be left behind the last argument. */
static inline int gf_decoder_done(struct gf_decoder *decoder) {
    return decoder->left == 0 ? 0 : gf_decoder_fail(decoder, "bytes behind the last argument");
}

#ifdef __cplusplus
}
#endif
