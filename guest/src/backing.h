/* Physical memory behind one device's part of the window. It is asked for in granules of the server's,
 * counted against the quota, and kept for a while when no allocation touches it. All of it with the window's
 * lock held.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_backing {
    int device;
    uint64_t base;
    struct gf_granule *granules;
    uint64_t granule_high;  /* one past the last that ever was mapped */
    uint64_t mapped, empty; /* granules; empty: no allocation */
    uint64_t trimmable;     /* of these: in empty runs */
    uint64_t elsewhere;     /* bytes of the quota that arrays have */
    uint64_t credit;        /* bytes that this process may have, once it shares its lease */
    uint64_t unmaps;        /* how often memory was given back */
    struct gf_backing *next;
};

/* For `size` bytes of addresses from `base` on. False: no memory. */
bool gf_backing_init(struct gf_backing *backing, int device, uint64_t base, uint64_t size);
/* An allocation takes these addresses: there is memory behind them from here on. */
CUresult gf_backing_use(struct gf_backing *backing, uint64_t address, uint64_t size);
/* It is over. Memory that no other one needs may stay for the next, unless it was exported: others may have
 * it. Like the two below: whether other processes of the lease may claim something then. */
bool gf_backing_leave(struct gf_backing *backing, uint64_t address, uint64_t size, bool exported);
/* Gives back all memory that no allocation needs. */
bool gf_backing_give_back(struct gf_backing *backing);
/* Whether memory that was behind some of these addresses may have been given back. */
bool gf_backing_was_there(const struct gf_backing *backing, uint64_t address, uint64_t size);
/* There is no memory behind these addresses, which no allocation has. */
void gf_backing_clear(struct gf_backing *backing, uint64_t address, uint64_t size);
/* Whether no memory behind these addresses was asked for together with that of others which are in use. */
bool gf_backing_is_apart(struct gf_backing *backing, uint64_t address, uint64_t size);

/* Takes bytes from the quota for what lies elsewhere, and gives them back. False: there are not so many. */
bool gf_backing_charge(struct gf_backing *backing, uint64_t bytes);
bool gf_backing_refund(struct gf_backing *backing, uint64_t bytes);
/* Bytes of the quota that this process has. */
uint64_t gf_backing_held(const struct gf_backing *backing);
/* Bytes that allocations have, and may have: `limit`, unless other processes have the lease too. */
CUresult gf_backing_info(struct gf_backing *backing, uint64_t limit, uint64_t *used, uint64_t *usable);
