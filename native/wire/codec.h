/* What the generated codecs of nested types share (specs/WIRE.md 11): bytes that grow, bytes that are read
 * with their end in sight, and memory that lives as long as one call. */
#pragma once
#include <cuda.h>
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
#define GF_PARAMS_MAX  32764 /* bytes of a kernel's parameters that CUDA allows */

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
    struct gf_arena_part *part = rounded < size ? NULL : (struct gf_arena_part *)calloc(1, 16 + rounded);
    if (part == NULL) {
        return NULL;
    }
    part->next = arena->parts;
    arena->parts = part;
    return (uint8_t *)part + 16;
}

/* One byte: whether there is a value, or room for an answer. */
static inline CUresult gf_append_presence(struct gf_bytes *bytes, const void *value) {
    uint8_t there = value != NULL;
    return gf_bytes_put(bytes, &there, 1, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether the values themselves follow; if not, `result` says why. */
static inline bool gf_append_begin(struct gf_bytes *bytes, const void *values, uint64_t count, bool nullable,
                                   CUresult *result) {
    *result = nullable ? gf_append_presence(bytes, values) : CUDA_SUCCESS;
    if (values == NULL && !nullable && count > 0) {
        *result = CUDA_ERROR_INVALID_VALUE;
    }
    return values != NULL && count > 0 && *result == CUDA_SUCCESS;
}

static inline CUresult gf_append_plain(struct gf_bytes *bytes, const void *values, uint64_t count,
                                       uint64_t size, bool nullable) {
    CUresult result;
    if (!gf_append_begin(bytes, values, count, nullable, &result)) {
        return result;
    }
    return gf_bytes_put(bytes, values, count, size) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Bytes being read, and what a server does with what it finds in them. `why` is set with GF_MALFORMED. */
struct gf_decoder {
    const uint8_t *at;
    size_t left;
    const char *why;
    void *session, *frame;
    /* From what the guest says to what the driver takes: 0 or a CUresult. `kinds`: bits 1 << enum
     * gf_handle_kind. */
    int (*handle)(struct gf_decoder *, unsigned kinds, uint64_t wire, void **driver);
    int (*address)(struct gf_decoder *, uint64_t address, uint64_t size, unsigned access);
    int (*device)(struct gf_decoder *, int wire, int *driver);
    /* And back. */
    int (*name)(struct gf_decoder *, unsigned kinds, void *driver, uint64_t *wire);
    int (*ordinal)(struct gf_decoder *, int driver, int *wire);
    uint32_t param_bytes; /* of the last function or kernel that `handle` found */
    struct gf_arena arena;
};

/* For `address` of a decoder. */
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
    decoder->param_bytes = 0;
    gf_arena_begin(&decoder->arena);
}

static inline void gf_decoder_end(struct gf_decoder *decoder) {
    gf_arena_end(&decoder->arena);
}

static inline int gf_decoder_fail(struct gf_decoder *decoder, const char *why) {
    decoder->why = why;
    return GF_MALFORMED;
}

/* Nothing may be left behind the last argument. */
static inline int gf_decoder_done(struct gf_decoder *decoder) {
    return decoder->left == 0 ? 0 : gf_decoder_fail(decoder, "bytes behind the last argument");
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

/* The next bytes, in memory of the call, `more` zeroes behind them. */
static inline int gf_decoder_copy(struct gf_decoder *decoder, uint64_t count, uint64_t size, size_t more,
                                  void **found) {
    const void *from = gf_decoder_next(decoder, count, size);
    if (from == NULL) {
        return gf_decoder_fail(decoder, "values end before their number");
    }
    *found = gf_arena_take(&decoder->arena, (size_t)(count * size) + more);
    if (*found == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(*found, from, (size_t)(count * size));
    return 0;
}

/* Whether the values themselves follow; if not, `status` says why. */
static inline bool gf_take_begin(struct gf_decoder *decoder, uint64_t count, bool nullable, int *status) {
    *status = 0;
    if (nullable) {
        const uint8_t *there = (const uint8_t *)gf_decoder_next(decoder, 1, 1);
        if (there == NULL || *there > 1) {
            *status = gf_decoder_fail(decoder, "neither a value nor none");
            return false;
        }
        return *there == 1 && count > 0;
    }
    return count > 0;
}

static inline int gf_take_plain(struct gf_decoder *decoder, uint64_t count, uint64_t size, bool nullable,
                                void **found) {
    int status;
    *found = NULL;
    return gf_take_begin(decoder, count, nullable, &status) ? gf_decoder_copy(decoder, count, size, 0, found)
                                                            : status;
}

/* Memory for an array that is answered; `told`: the request says whether it is wanted. */
static inline int gf_room(struct gf_decoder *decoder, uint64_t count, uint64_t size, bool told,
                          void **found) {
    int status;
    *found = NULL;
    if (!gf_take_begin(decoder, count, told, &status)) {
        return status;
    }
    if (gf_times(count, size) > GF_BYTES_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *found = gf_arena_take(&decoder->arena, (size_t)(count * size));
    return *found == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0;
}

/* An array that the driver answered; NULL: it was not wanted. */
static inline int gf_return_plain(struct gf_bytes *bytes, const void *values, uint64_t count, uint64_t size) {
    return values == NULL || gf_bytes_put(bytes, values, count, size) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

/* In the guest: an answer to where the program wants it; NULL: it does not. */
static inline CUresult gf_fetch(void *value, const void *image, size_t size) {
    if (value != NULL) {
        memcpy(value, image, size);
    }
    return CUDA_SUCCESS;
}

static inline CUresult gf_fetch_behind(struct gf_decoder *decoder, void *values, uint64_t count,
                                       uint64_t size) {
    if (values == NULL || count == 0) {
        return CUDA_SUCCESS;
    }
    const void *from = gf_decoder_next(decoder, count, size);
    return from == NULL ? CUDA_ERROR_UNKNOWN : gf_fetch(values, from, (size_t)(count * size));
}

#ifdef __cplusplus
}
#endif
