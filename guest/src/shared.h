/* Memory that program and device share at one address: managed memory, and host memory that is mapped for the
 * device. It is memory of the window with pages behind it here too. What the program wrote is sent before the
 * device may look; what the device may have written is fetched when the program touches it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_shared {
    uint64_t address, size;
    unsigned flags; /* of the call that made it */
    bool managed;   /* else it is page-locked host memory */
};

CUresult gf_shared_alloc(uint64_t size, unsigned flags, bool managed, uint64_t *address);
/* Page-locked memory that the program has, where the device now has as much behind the same addresses. */
CUresult gf_shared_begin(uint64_t address, uint64_t size, unsigned flags);
/* Memory that the device has at these addresses, and the program now shares: nothing of it is here yet. Not
 * twice, if it is shared already. */
CUresult gf_shared_open(uint64_t address, uint64_t size, CUdevice device);
/* The device's copy of registered memory, which is kept like it. */
CUresult gf_shared_mirror(uint64_t host, uint64_t size, uint64_t *device);
/* Waits for the context in which kernels reach it, and ends that copy, if there is one. */
void gf_shared_end_mirror(uint64_t host);
/* Memory that begins at an address ends. False: none of that kind does. */
bool gf_shared_end(uint64_t address, bool managed);
/* Managed memory that came with a module, at an address that is the server's choice, and whatever lies beside
 * it; as often as it is adopted it is left. context: in which it is copied. */
CUresult gf_shared_adopt(uint64_t address, uint64_t size, uint64_t context);
void gf_shared_leave(uint64_t address);
/* What a context owns. Page-locked memory of another one, which it let kernels of this one reach, is that
 * one's from then on. */
void gf_shared_end_context(uint64_t owner);
/* The shared memory that holds an address. */
bool gf_shared_find(uint64_t address, struct gf_shared *found);
/* Whether the device may be writing what the program shares with it. */
bool gf_shared_at_work(void);
/* What the program wrote is on the device when this returns. */
void gf_shared_flush(void);
