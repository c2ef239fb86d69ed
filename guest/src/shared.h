/* Memory that program and device share at one address: managed memory, and host memory that is mapped for the
 * device. It is memory of the window with pages behind it here too. What the program wrote is sent before the
 * device may look; what the device may have written is fetched when the program touches it. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_shared {
    uint64_t address, size;
    unsigned flags; /* of the call that made it */
    bool managed;   /* else it is page-locked host memory */
};

CUresult gf_shared_alloc(uint64_t size, unsigned flags, bool managed, uint64_t *address);
/* Memory that begins at an address ends. False: none of that kind does. */
bool gf_shared_end(uint64_t address, bool managed);
/* What a context owns. */
void gf_shared_end_context(uint64_t owner);
/* The shared memory that holds an address. */
bool gf_shared_find(uint64_t address, struct gf_shared *found);
/* What the program wrote is on the device when this returns. */
void gf_shared_flush(void);

/* Whether there ever was any. */
extern _Atomic bool gf_shared_exists;
static inline bool gf_shared_any(void) {
    return __builtin_expect(atomic_load_explicit(&gf_shared_exists, memory_order_relaxed), 0);
}

bool gf_shared_reach_slowly(uint64_t address, uint64_t size, bool write);
/* Shared memory in a range may be touched by who does not raise a fault, as far as it lies in one allocation.
 * False: nothing had to be done for it. */
static inline bool gf_shared_reach(const void *address, uint64_t size, bool write) {
    return gf_shared_any() && gf_shared_reach_slowly((uint64_t)address, size, write);
}
