/* Page-locked host memory: to this library a promise that it stays where it is, which lets copies run behind
 * the program. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_host_range {
    uint64_t address, size;
    uint64_t owner, id;
    unsigned flags;
    bool registered; /* else allocated here */
    bool in_window;  /* at addresses that the device can have too */
    bool shared;     /* it has: kernels reach it */
};

/* The page-locked range that holds an address. */
bool gf_host_find(uint64_t address, struct gf_host_range *range);
/* Whether all of it is page-locked. */
bool gf_host_is_locked(const void *base, uint64_t size);

/* A new range, unless a byte of it is of another (`if_taken`); one that begins at an address, or any one of a
 * context, which ends; the range that holds an address is shared from now on. */
CUresult gf_host_add(struct gf_host_range range, CUresult if_taken);
bool gf_host_take(uint64_t address, bool registered, struct gf_host_range *range);
bool gf_host_take_of(uint64_t owner, struct gf_host_range *range);
void gf_host_set_shared(uint64_t address);

/* A context ends, and its page-locked memory with it, when all is there that was copied into it. */
void gf_host_end_context(uint64_t owner);

/* Kernels are to reach page-locked memory in which an address lies, if there is any that they do not reach
 * yet. */
CUresult gf_host_share(uint64_t address);
/* The same for addresses among a kernel's parameters. */
CUresult gf_host_share_params(const char *params, uint64_t size);
