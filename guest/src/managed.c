#include "calls.h"
#include "functions.h"
#include "guest.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

struct managed_memory;
static bool find(uint64_t address, struct managed_memory *found);

static CUresult check_stream(CUstream stream) {
    uint64_t wire;
    return gf_wire_stream(stream, &wire);
}

#define DRIVER(name)            gf_##name
#define ENTER                   (void)0
#define MANAGED(address, found) find((address), (found))
#define DEVICES                 gf_session.device_count
#define STREAM(stream)          check_stream(stream)

#include "driver_interop/managed.c.h"

static bool find(uint64_t address, struct managed_memory *found) {
    struct gf_shared shared;
    struct gf_allocation allocation = {0};
    if (!gf_shared_find(address, &shared) || !shared.managed) {
        return false;
    }
    gf_window_find(address, &allocation);
    *found = (struct managed_memory){shared.address, shared.size, allocation.id};
    return true;
}

CUresult gf_managed_alloc(CUdeviceptr *address, size_t size, unsigned flags) {
    uint64_t found;
    CUresult result = gf_shared_alloc(size, flags, true, &found);
    if (result == CUDA_SUCCESS) {
        *address = found;
    }
    return result;
}
