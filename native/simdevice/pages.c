#define _GNU_SOURCE
#include "pages.h"
#include "addresses.h"
#include "sanitizer.h"
#include "variance.h"
#include <sys/mman.h>

#define LARGE    (UINT64_C(2) << 20)
#define ATTEMPTS 24
#define GAPS     64          /* of which one is left free, where addresses vary */
#define BATCH    (8 * LARGE) /* of one MADV_COLLAPSE, which disturbs every core */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* All pages lie in this region, as long as there is a place in it that a few attempts find; else the kernel
 * chooses another. ThreadSanitizer lets a program have memory in a lower one alone. */
struct region {
    uint64_t begin, end;
};
static const struct region usual = {SIM_PAGES_BEGIN, SIM_PAGES_END};
static const struct region low = {UINT64_C(0x1000000000), UINT64_C(0x7000000000)};
static _Atomic uint64_t cursor = SIM_PAGES_BEGIN;

static uint64_t suggest(uint64_t size, uint64_t alignment) {
    uint64_t at = atomic_load_explicit(&cursor, memory_order_relaxed), base;
    uint64_t gap = sim_draw(SIM_OPEN_PAGES, GAPS) * alignment;
    const struct region *region = sim_under_tsan() ? &low : &usual;
    do {
        base = sim_round_up(at, alignment) + gap;
        if (base < region->begin || base + size > region->end)
            base = region->begin;
    } while (!atomic_compare_exchange_weak(&cursor, &at, base + size));
    return base;
}

static uint64_t map(uint64_t wanted, uint64_t size, int protection, int flags) {
    void *base =
        mmap((void *)wanted, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    return base == MAP_FAILED ? 0 : (uint64_t)base;
}

/* Maps at `wanted` or not at all. An older kernel takes the flag for a suggestion. */
static bool map_at(uint64_t wanted, uint64_t size, int protection) {
    uint64_t base = map(wanted, size, protection, sim_under_tsan() ? 0 : MAP_FIXED_NOREPLACE);
    if (base && base != wanted)
        munmap((void *)base, size);
    return base == wanted;
}

/* The next place in the region that is free; 0: a few attempts found none. What is in the way may be large,
 * so each attempt goes twice as far. */
static uint64_t map_in_region(uint64_t size, uint64_t alignment, int protection) {
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint64_t base = suggest(size, alignment);
        if (map_at(base, size, protection))
            return base;
        atomic_fetch_add(&cursor, LARGE << attempt);
    }
    return 0;
}

uint64_t sim_pages_new(uint64_t size) {
    uint64_t alignment = size >= LARGE ? LARGE : SIM_PAGE; /* large ones lie on huge page boundaries */
    uint64_t base = map_in_region(size, alignment, PROT_READ | PROT_WRITE);
    return base ? base : map(suggest(size, alignment), size, PROT_READ | PROT_WRITE, 0);
}

bool sim_pages_new_at(uint64_t base, uint64_t size) {
    return map_at(base, size, PROT_READ | PROT_WRITE);
}

void sim_pages_free(uint64_t base, uint64_t size) {
    munmap((void *)base, size);
}

bool sim_pages_allow(uint64_t base, uint64_t size, bool allowed) {
    return mprotect((void *)base, size, allowed ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

static bool is_missing(uint64_t page) {
    unsigned char there;
    return mincore((void *)page, SIM_PAGE, &there) == 0 && !(there & 1);
}

void sim_pages_expect(uint64_t base, uint64_t size) {
    uint64_t at = sim_round_up(base, LARGE), end = (base + size) / LARGE * LARGE;
    while (at < end) {
        uint64_t from = at;
        for (; at < end && at - from < BATCH && is_missing(at); at += LARGE)
            madvise((void *)at, SIM_PAGE, MADV_POPULATE_WRITE); /* nothing is collapsed where nothing is */
        if (at == from)
            at += LARGE;
        else
            madvise((void *)from, at - from, MADV_COLLAPSE); /* if not, faults do it */
    }
}

uint64_t sim_pages_reserve(uint64_t size, uint64_t alignment, uint64_t wanted) {
    if (wanted && wanted % alignment == 0 && map_at(wanted, size, PROT_NONE))
        return wanted;
    uint64_t found = map_in_region(size, alignment, PROT_NONE);
    if (found)
        return found;
    /* reserve more than asked for and cut to the alignment: the kernel need not follow the suggestion */
    uint64_t larger = size + alignment - SIM_PAGE;
    uint64_t base = map(suggest(larger, alignment), larger, PROT_NONE, 0);
    if (!base)
        return 0;
    uint64_t aligned = sim_round_up(base, alignment);
    if (aligned > base)
        munmap((void *)base, aligned - base);
    if (base + larger > aligned + size)
        munmap((void *)(aligned + size), base + larger - aligned - size);
    return aligned;
}
