#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#define SLAB         256
#define TRIES_IN_BIN 8

/* Four classes per power of two. */
static unsigned bin_of(uint64_t size) {
    uint64_t units = size / GF_BLOCK_ALIGN;
    if (units < 4) {
        return (unsigned)units;
    }
    unsigned log = 63 - (unsigned)__builtin_clzll(units);
    return 4 * (log - 1) + (unsigned)(units >> (log - 2) & 3);
}

static struct gf_block *spare_block(struct gf_blocks *blocks) {
    if (blocks->spare == NULL) {
        struct gf_block *slab = calloc(SLAB, sizeof *slab);
        if (slab == NULL) {
            return NULL;
        }
        for (int i = 0; i < SLAB; i++) {
            slab[i].after = blocks->spare;
            blocks->spare = &slab[i];
        }
    }
    struct gf_block *block = blocks->spare;
    blocks->spare = block->after;
    return block;
}

static void retire(struct gf_blocks *blocks, struct gf_block *block) {
    block->after = blocks->spare;
    blocks->spare = block;
}

static void bin_add(struct gf_blocks *blocks, struct gf_block *block) {
    unsigned bin = bin_of(block->size);
    block->used = false;
    block->previous = NULL;
    block->next = blocks->bins[bin];
    if (block->next != NULL) {
        block->next->previous = block;
    }
    blocks->bins[bin] = block;
    blocks->occupied[bin / 64] |= 1ull << bin % 64;
}

static void bin_remove(struct gf_blocks *blocks, struct gf_block *block) {
    unsigned bin = bin_of(block->size);
    if (block->next != NULL) {
        block->next->previous = block->previous;
    }
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        blocks->bins[bin] = block->next;
        if (block->next == NULL) {
            blocks->occupied[bin / 64] &= ~(1ull << bin % 64);
        }
    }
}

static struct gf_block *merge(struct gf_block *left, struct gf_block *right) {
    struct gf_block *root = NULL, **at = &root;
    while (left != NULL && right != NULL) {
        if (left->priority > right->priority) {
            *at = left;
            at = &left->right;
            left = left->right;
        } else {
            *at = right;
            at = &right->left;
            right = right->left;
        }
    }
    *at = left != NULL ? left : right;
    return root;
}

static void tree_add(struct gf_blocks *blocks, struct gf_block *block) {
    blocks->random ^= blocks->random << 13;
    blocks->random ^= blocks->random >> 7;
    blocks->random ^= blocks->random << 17;
    block->priority = blocks->random;
    struct gf_block **at = &blocks->root;
    while (*at != NULL && (*at)->priority > block->priority) {
        at = block->address < (*at)->address ? &(*at)->left : &(*at)->right;
    }
    struct gf_block *rest = *at, **left = &block->left, **right = &block->right;
    *at = block;
    while (rest != NULL) {
        if (rest->address < block->address) {
            *left = rest;
            left = &rest->right;
            rest = rest->right;
        } else {
            *right = rest;
            right = &rest->left;
            rest = rest->left;
        }
    }
    *left = *right = NULL;
}

static void tree_remove(struct gf_blocks *blocks, struct gf_block *block) {
    struct gf_block **at = &blocks->root;
    while (*at != block) {
        at = block->address < (*at)->address ? &(*at)->left : &(*at)->right;
    }
    *at = merge(block->left, block->right);
}

bool gf_blocks_init(struct gf_blocks *blocks, uint64_t base, uint64_t size) {
    memset(blocks, 0, sizeof *blocks);
    blocks->random = 0x9e3779b97f4a7c15;
    struct gf_block *all = spare_block(blocks);
    if (all == NULL) {
        return false;
    }
    *all = (struct gf_block){.address = base, .size = size / GF_BLOCK_ALIGN * GF_BLOCK_ALIGN};
    blocks->first = all;
    bin_add(blocks, all);
    return true;
}

/* What is asked for. */
struct wish {
    uint64_t size, align, from;
};

static uint64_t aligned_in(const struct gf_block *block, const struct wish *wish) {
    uint64_t least = block->address > wish->from ? block->address : wish->from;
    return (least + wish->align - 1) / wish->align * wish->align;
}

static bool fits(const struct gf_block *block, const struct wish *wish) {
    uint64_t skipped = aligned_in(block, wish) - block->address;
    return skipped <= block->size && block->size - skipped >= wish->size;
}

static struct gf_block *fit_in_bins(struct gf_blocks *blocks, unsigned from, const struct wish *wish,
                                    int tries) {
    for (unsigned word = from / 64; word < GF_BLOCK_BINS / 64; word++) {
        uint64_t bits = blocks->occupied[word];
        if (word == from / 64) {
            bits &= ~0ull << from % 64;
        }
        for (; bits != 0; bits &= bits - 1) {
            struct gf_block *block = blocks->bins[64 * word + (unsigned)__builtin_ctzll(bits)];
            for (int i = 0; block != NULL && i != tries; i++, block = block->next) {
                if (fits(block, wish)) {
                    return block;
                }
            }
        }
    }
    return NULL;
}

/* The rest of a free block behind `size` bytes becomes a free block of its own. */
static bool split(struct gf_blocks *blocks, struct gf_block *block, uint64_t size) {
    if (block->size == size) {
        return true;
    }
    struct gf_block *rest = spare_block(blocks);
    if (rest == NULL) {
        return false;
    }
    *rest = (struct gf_block){.address = block->address + size,
                              .size = block->size - size,
                              .before = block,
                              .after = block->after,
                              .freed_at = block->freed_at,
                              .freed_stream = block->freed_stream};
    if (block->after != NULL) {
        block->after->before = rest;
    }
    block->after = rest;
    block->size = size;
    bin_add(blocks, rest);
    return true;
}

/* The second block becomes part of the first; the later and wider claim on either holds for both. */
static void join(struct gf_blocks *blocks, struct gf_block *first, struct gf_block *second) {
    first->size += second->size;
    first->after = second->after;
    if (second->after != NULL) {
        second->after->before = first;
    }
    if (first->freed_at == 0) {
        first->freed_stream = second->freed_stream;
    } else if (second->freed_at != 0 && first->freed_stream != second->freed_stream) {
        first->freed_stream = 0;
    }
    first->freed_at = second->freed_at > first->freed_at ? second->freed_at : first->freed_at;
    retire(blocks, second);
}

static bool is_free(const struct gf_block *block) {
    return block != NULL && !block->used && !block->resting;
}

/* A block that is neither used nor resting is found again, together with what is free beside it. */
static void set_free(struct gf_blocks *blocks, struct gf_block *block) {
    struct gf_block *after = block->after, *before = block->before;
    if (is_free(after)) {
        bin_remove(blocks, after);
        join(blocks, block, after);
    }
    if (is_free(before)) {
        bin_remove(blocks, before);
        join(blocks, before, block);
        block = before;
    }
    bin_add(blocks, block);
}

/* Frees what has rested longest. */
static void wake(struct gf_blocks *blocks) {
    struct gf_block *block = blocks->rested_first;
    blocks->rested_first = block->next;
    blocks->resting--;
    blocks->resting_size -= block->size;
    block->resting = false;
    set_free(blocks, block);
}

static struct gf_block *find_fit(struct gf_blocks *blocks, const struct wish *wish) {
    struct gf_block *block = fit_in_bins(blocks, bin_of(wish->size), wish, TRIES_IN_BIN);
    return block != NULL ? block : fit_in_bins(blocks, bin_of(wish->size), wish, -1);
}

struct gf_block *gf_blocks_take(struct gf_blocks *blocks, uint64_t size, uint64_t align, uint64_t from,
                                uint64_t *freed_at, uint64_t *freed_stream) {
    size = (size + GF_BLOCK_ALIGN - 1) / GF_BLOCK_ALIGN * GF_BLOCK_ALIGN;
    struct wish wish = {.size = size, .align = align, .from = from};
    struct gf_block *block = find_fit(blocks, &wish);
    if (block == NULL && blocks->resting > 0) {
        while (blocks->resting > 0) {
            wake(blocks);
        }
        block = find_fit(blocks, &wish);
    }
    if (block == NULL) {
        return NULL;
    }
    bin_remove(blocks, block);
    uint64_t skipped = aligned_in(block, &wish) - block->address;
    if (skipped > 0) {
        struct gf_block *front = block;
        if (!split(blocks, front, skipped)) {
            bin_add(blocks, front);
            return NULL;
        }
        block = front->after;
        bin_remove(blocks, block);
        bin_add(blocks, front);
    }
    if (!split(blocks, block, size)) {
        bin_add(blocks, block);
        return NULL;
    }
    *freed_at = block->freed_at;
    *freed_stream = block->freed_stream;
    block->used = true;
    tree_add(blocks, block);
    return block;
}

/* It is not used any more, and not free yet. */
static void end_use(struct gf_blocks *blocks, struct gf_block *block, uint64_t freed_at,
                    uint64_t freed_stream) {
    tree_remove(blocks, block);
    block->used = false;
    block->freed_at = freed_at;
    block->freed_stream = freed_stream;
}

void gf_blocks_give(struct gf_blocks *blocks, struct gf_block *block, uint64_t freed_at,
                    uint64_t freed_stream) {
    end_use(blocks, block, freed_at, freed_stream);
    set_free(blocks, block);
}

void gf_blocks_rest(struct gf_blocks *blocks, struct gf_block *block, uint64_t freed_at,
                    uint64_t freed_stream) {
    end_use(blocks, block, freed_at, freed_stream);
    block->resting = true;
    block->next = NULL;
    *(blocks->resting > 0 ? &blocks->rested_last->next : &blocks->rested_first) = block;
    blocks->rested_last = block;
    blocks->resting++;
    blocks->resting_size += block->size;
    while (blocks->resting > GF_BLOCKS_REST ||
           (blocks->resting > 1 && blocks->resting_size > GF_BLOCKS_REST_SIZE)) {
        wake(blocks);
    }
}

struct gf_block *gf_blocks_find(const struct gf_blocks *blocks, uint64_t address) {
    struct gf_block *at = blocks->root, *found = NULL;
    while (at != NULL) {
        if (at->address <= address) {
            found = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return found != NULL && address - found->address < found->size ? found : NULL;
}
