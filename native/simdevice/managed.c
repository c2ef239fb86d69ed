#include "memory.h"
#include "stream.h"

struct managed_memory;
static bool find(uint64_t address, struct managed_memory *found);

static CUresult check_stream(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    sim_release(stream);
    return CUDA_SUCCESS;
}

#define DRIVER(name)            name
#define ENTER                   SIM_TRY(sim_enter())
#define MANAGED(address, found) find((address), (found))
#define DEVICES                 sim_device_count()
#define STREAM(stream)          check_stream(stream)

#include "driver_interop/managed.c.h"

static bool find(uint64_t address, struct managed_memory *found) {
    struct sim_range range;
    if (!sim_ranges_find(&sim_memory, address, &range) || range.kind != SIM_RANGE_MANAGED)
        return false;
    *found = (struct managed_memory){range.base, range.size, range.id};
    return true;
}

/* Host and device have the same pages: they are where they were last asked for, or nowhere in particular. */
CUresult cuMemGetLocationInfo(CUdeviceptr address, size_t size, size_t summary, size_t sampling,
                              CUmemLocation *locations) {
    struct managed_memory memory;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(locations && summary && summary <= size && sampling <= summary);
    SIM_TRY(managed_range(address, size, &memory));
    for (size_t at = 0; at < size; at += summary) {
        size_t part = size - at < summary ? size - at : summary;
        locations[at / summary] = managed_common(&memory, address + at, part).prefetched;
    }
    return CUDA_SUCCESS;
}
