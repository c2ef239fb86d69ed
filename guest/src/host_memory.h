/* Page-locked host memory: to this library a promise that it stays where it is, which lets copies run behind
 * the program. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct gf_host_range {
    uint64_t address, size;
    uint64_t owner, id;
    unsigned flags;
    bool registered; /* else allocated here */
};

/* The page-locked range that holds an address. */
bool gf_host_find(uint64_t address, struct gf_host_range *range);
/* Whether all of it is page-locked. */
bool gf_host_is_locked(const void *base, uint64_t size);
