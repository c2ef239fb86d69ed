/* Which addresses of a range are handed out: best-fit by size classes, neighbours coalesced, any address
 * found in logarithmic time. Knows nothing of CUDA, memory or locks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define GF_BLOCK_ALIGN 512u
#define GF_BLOCK_BINS  256
/* What rests at a time. One block may be larger. */
#define GF_BLOCKS_REST      1024u
#define GF_BLOCKS_REST_SIZE (64ull << 30)

struct gf_block {
    uint64_t address, size;          /* size: multiple of GF_BLOCK_ALIGN */
    bool used, resting;              /* neither: free */
    struct gf_block *before, *after; /* by address */
    union {
        struct {                              /* free, or resting */
            struct gf_block *previous, *next; /* resting: what came to rest after it */
            uint64_t freed_at;                /* everything enqueued up to here may still use it */
            uint64_t freed_stream;            /* only work of this stream (0: of any) */
        };
        struct { /* used */
            struct gf_block *left, *right;
            uint64_t priority;
            uint64_t requested; /* size as asked for */
            uint64_t owner;     /* context */
            uint64_t id;
            uint64_t pool;   /* handle; 0: it is of none */
            uint64_t begins; /* offset of the allocation: it begins there, where others lie before it */
            uint8_t *token;  /* by which other processes open it; NULL: none may */
            bool imported;   /* another process's memory */
            bool reserved;   /* addresses alone, nothing behind them */
            bool hidden;     /* nothing that the program has by this address */
            bool synchronous;
        };
    };
};

struct gf_blocks {
    struct gf_block *root; /* of the tree of used blocks */
    struct gf_block *first, *spare;
    struct gf_block *rested_first, *rested_last; /* as they came to rest */
    unsigned resting;
    uint64_t resting_size;
    struct gf_block *bins[GF_BLOCK_BINS];
    uint64_t occupied[GF_BLOCK_BINS / 64];
    uint64_t random;
};

/* Begins with the whole range free; false: no memory. */
bool gf_blocks_init(struct gf_blocks *blocks, uint64_t base, uint64_t size);
/* A used block of at least `size` bytes, aligned, at no address below `from`; NULL: no room. *freed_at and
 * *freed_stream say who may still use it. */
struct gf_block *gf_blocks_take(struct gf_blocks *blocks, uint64_t size, uint64_t align, uint64_t from,
                                uint64_t *freed_at, uint64_t *freed_stream);
/* Makes a used block free again. */
void gf_blocks_give(struct gf_blocks *blocks, struct gf_block *block, uint64_t freed_at,
                    uint64_t freed_stream);
/* The same, but it is not handed out before enough others have come to rest, or there is no other room. */
void gf_blocks_rest(struct gf_blocks *blocks, struct gf_block *block, uint64_t freed_at,
                    uint64_t freed_stream);
/* The used block that holds an address. */
struct gf_block *gf_blocks_find(const struct gf_blocks *blocks, uint64_t address);
