/* Allocations, and what an address belongs to. */
#pragma once
#include "context.h"
#include "pages.h"
#include "range.h"

#define SIM_DIRT 0xA5 /* a byte of new memory where GPUFERRY_SIM_DIRTY asks for it */

/* CU_POINTER_ATTRIBUTE_BUFFER_ID of a new allocation. */
uint64_t sim_memory_next_id(void);
/* A range that is nowhere yet, with an id of its own. */
struct sim_range *sim_memory_range(enum sim_range_kind kind, struct sim_device *device,
                                   struct sim_context *context, uint64_t size, unsigned flags);
/* Makes a range known and charges its device; its pages are new, or there already if it is placed. Takes it
 * over: it is gone if this fails. */
CUresult sim_memory_add(struct sim_range *range);
/* Bytes from its base that kernels reach. A GPU maps memory in large pages: who overruns an allocation within
 * them hears nothing of it. */
uint64_t sim_memory_reachable(const struct sim_range *range);
/* New pages for a device as a known range. */
CUresult sim_memory_new(enum sim_range_kind kind, struct sim_device *device, struct sim_context *context,
                        uint64_t size, unsigned flags, uint64_t *base);
/* The same in pages that are there and stay when it is deleted. */
CUresult sim_memory_place(enum sim_range_kind kind, struct sim_device *device, struct sim_context *context,
                          uint64_t size, uint64_t base);
/* Gives back a range taken out of sim_memory, with its pages and its charge. */
void sim_memory_dispose(struct sim_range *range);
/* Removes and disposes of the range that begins there. */
void sim_memory_delete(uint64_t base);
void sim_memory_free_context(struct sim_context *context);

struct sim_span {
    bool known; /* all of it is memory of the driver: device, pinned, managed or mapped */
    bool host;  /* known, and host memory */
    bool sync_memops;
    bool read_only;
    enum sim_range_kind kind;  /* of its first byte */
    struct sim_device *device; /* where that lies; of host memory: where it was made */
};
/* Looks at `size` bytes. INVALID_VALUE if they begin in device memory and leave it, or have no access rights.
 */
CUresult sim_span_look(uint64_t address, uint64_t size, struct sim_span *span);
/* The same, and it must be known. */
CUresult sim_span_require(uint64_t address, uint64_t size, struct sim_span *span);
