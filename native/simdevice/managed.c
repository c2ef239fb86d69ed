#include "capture.h"
#include "memory.h"
#include "stream.h"

struct managed_memory;
static bool find(uint64_t address, struct managed_memory *found);

static CUresult check_stream(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = sim_capture_check_stream(stream);
    sim_release(stream);
    return result;
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
