/* Page-locked memory of the program: its functions, and how kernels come to reach it. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "context.h"
#include "driver_interop/registration.h"
#include "freeing.h"
#include "functions.h"
#include "guest.h"
#include "host_memory.h"
#include "mirror.h"
#include "pending.h"
#include "shared.h"
#include "stream.h"
#include "vmm.h"
#include "window.h"

#define PAGE 4096ull

/* Held while memory is made the device's, and while it is taken from those that may be: it ends as what it is
 * by then. Any word among a kernel's parameters may name it, also what another thread is just freeing. */
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;

/* Allocated for the device too, from the beginning. */
static bool is_mapped(const struct gf_host_range *range) {
    return !range->registered && (range->flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0;
}

static uint64_t granules(uint64_t size) {
    return (size + gf_session.granularity - 1) / gf_session.granularity * gf_session.granularity;
}

static void free_plain(const struct gf_host_range *range) {
    uint64_t size = (range->size + PAGE - 1) / PAGE * PAGE;
    if (range->shared) {
        gf_shared_end(range->address, false);
        gf_mapping_end(range->address, granules(size), true);
    }
    if (range->in_window) {
        gf_window_untouchable(range->address, size);
        gf_window_unreserve(range->address, granules(range->size));
    } else {
        munmap((void *)range->address, size);
    }
}

/* The device reaches it at the same address. */
static CUresult alloc_mapped(void **memory, size_t size, unsigned flags) {
    uint64_t address;
    CUresult result = gf_shared_alloc(size, flags, false, &address);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = gf_host_add((struct gf_host_range){.address = address, .size = size, .flags = flags},
                         CUDA_ERROR_OUT_OF_MEMORY);
    if (result != CUDA_SUCCESS) {
        gf_shared_end(address, false);
        gf_window_free(address, 0);
        return result;
    }
    *memory = (void *)address;
    return CUDA_SUCCESS;
}

/* At addresses of the window with nothing behind them on the device, where it can have them as soon as a
 * kernel is given one (gf_host_share); else anywhere. */
static CUresult alloc_plain(void **memory, size_t bytes, unsigned flags) {
    struct gf_host_range range = {.size = bytes, .flags = flags};
    uint64_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    if (size < bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range.in_window = size <= gf_session.window_size &&
                      gf_window_reserve(granules(size), 0, &range.address) == CUDA_SUCCESS;
    if (range.in_window && !gf_window_touchable(range.address, size)) {
        gf_window_unreserve(range.address, granules(size));
        range.in_window = false;
    }
    if (!range.in_window) {
        void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        range.address = (uint64_t)found;
    }
    CUresult result = gf_host_add(range, CUDA_ERROR_OUT_OF_MEMORY);
    if (result == CUDA_SUCCESS) {
        *memory = (void *)range.address;
    } else {
        free_plain(&range);
    }
    return result;
}

CUresult gf_cuMemHostAlloc(void **pp, size_t bytesize, unsigned Flags) {
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pp == NULL || (Flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((Flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0) {
        return alloc_mapped(pp, bytesize + (bytesize == 0), Flags); /* nothing may be freed like anything */
    }
    return alloc_plain(pp, bytesize + (bytesize == 0), Flags);
}

CUresult gf_cuMemFreeHost(void *p) {
    struct gf_host_range range;
    if (p == NULL) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&sharing);
    bool taken = gf_host_take((uint64_t)p, false, &range);
    pthread_mutex_unlock(&sharing);
    if (!taken) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool reached = is_mapped(&range) || range.shared;
    CUresult waited = reached ? gf_free_shared_begins() : gf_free_begins(gf_context_device(range.owner));
    if (is_mapped(&range)) {
        gf_shared_end(range.address, false);
        gf_window_free(range.address, 0);
    } else {
        gf_pending_wait(p, range.size);
        free_plain(&range);
    }
    gf_window_settle(true);
    return waited;
}

static bool take_of(uint64_t owner, struct gf_host_range *range) {
    pthread_mutex_lock(&sharing);
    bool taken = gf_host_take_of(owner, range);
    pthread_mutex_unlock(&sharing);
    return taken;
}

void gf_host_end_context(uint64_t owner) {
    struct gf_host_range range;
    bool waited = false;
    while (take_of(owner, &range)) {
        if (!waited) {
            gf_wait_for_context(owner);
            gf_pending_wait(NULL, UINT64_MAX);
            waited = true;
        }
        if (range.registered) {
            gf_shared_end_mirror(range.address); /* it may be another context's */
        } else if (!is_mapped(&range)) {         /* else it ends as what the device shares does */
            free_plain(&range);
        }
    }
}

CUresult gf_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned Flags) {
    /* Memory that the device only reads needs nothing else: what it has not changed is never written here. */
    CUresult result = gf_registration_check(p, bytesize, Flags);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (gf_window_contains((uint64_t)p)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED; /* the driver's own, of whatever kind */
    }
    result = gf_registration_allowed(p, bytesize, Flags);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return gf_host_add(
        (struct gf_host_range){.address = (uint64_t)p, .size = bytesize, .flags = Flags, .registered = true},
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

CUresult gf_cuMemHostUnregister(void *p) {
    struct gf_host_range range;
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!gf_host_take((uint64_t)p, true, &range)) {
        return gf_host_find((uint64_t)p, &range) ? CUDA_ERROR_INVALID_VALUE /* allocated, or within */
                                                 : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    CUresult waited = gf_free_begins(gf_context_device(range.owner));
    gf_pending_wait(p, range.size);
    gf_shared_end_mirror(range.address);
    gf_window_settle(true);
    return waited;
}

CUresult gf_cuMemHostGetFlags(unsigned *pFlags, void *p) {
    struct gf_host_range range;
    if (pFlags == NULL || !gf_host_find((uint64_t)p, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pFlags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP; /* as the driver says of all that is page-locked */
    return CUDA_SUCCESS;
}

CUresult gf_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned Flags) {
    struct gf_host_range range;
    if (pdptr == NULL || Flags != 0 || !gf_host_find((uint64_t)p, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_mapped(&range) || range.in_window) {
        *pdptr = (CUdeviceptr)p;
        return gf_host_share(range.address);
    }
    struct gf_mirror mirror = {.host = range.address};
    CUresult result = CUDA_SUCCESS;
    if (!gf_mirror_find(range.address, true, &mirror)) {
        gf_pending_wait((void *)range.address, range.size); /* the device begins with what is there */
        result = gf_shared_mirror(range.address, range.size, &mirror.device);
    }
    if (result == CUDA_SUCCESS) {
        *pdptr = mirror.device + ((uint64_t)p - mirror.host);
    }
    return result;
}

/* Physical memory of the device behind the addresses of a range. */
static CUresult map(const struct gf_host_range *range) {
    const CUmemLocation home = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gf_device_number()};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = home};
    CUmemAccessDesc access[GF_DEVICES_MAX] = {
        {.location = home, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    size_t reached_by = 1;
    CUmemGenericAllocationHandle handle;
    uint64_t size = granules(range->size);
    if (gf_function_lacks[GF_FN_cuMemMap]) {
        return gf_unsupported_here(GF_FN_cuMemMap);
    }
    CUresult result = gf_cuMemCreate(&handle, size, &prop, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = gf_mapping_make(range->address, size, 0, handle, true);
    gf_cuMemRelease(handle); /* the mapping keeps it */
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (CUdevice device = 0; device < gf_session.device_count; device++) {
        if (device != home.id && gf_session.links[device][home.id].can_access) {
            access[reached_by] = access[0];
            access[reached_by++].location.id = device;
        }
    }
    if (reached_by > 1) { /* when the next device is let to it, the first one may use it */
        gf_access_begins();
    }
    result = gf_mapping_set_access(range->address, size, access, reached_by, true);
    result = result == CUDA_SUCCESS ? gf_shared_begin(range->address, range->size, range->flags) : result;
    if (result != CUDA_SUCCESS) {
        gf_mapping_end(range->address, size, true);
    }
    return result;
}

CUresult gf_host_share(uint64_t address) {
    struct gf_host_range range;
    CUresult result = CUDA_SUCCESS;
    if (!gf_host_find(address, &range) || !range.in_window || range.shared) {
        return CUDA_SUCCESS;
    }
    gf_pending_wait((void *)range.address, range.size);
    pthread_mutex_lock(&sharing);
    if (gf_host_find(address, &range) && range.in_window && !range.shared) {
        result = map(&range);
        if (result == CUDA_SUCCESS) {
            gf_host_set_shared(address);
        }
    }
    pthread_mutex_unlock(&sharing);
    return result;
}

CUresult gf_host_share_params(const char *params, uint64_t size) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; size >= 8 && at <= size - 8 && result == CUDA_SUCCESS; at++) {
        uint64_t address;
        memcpy(&address, params + at, sizeof address);
        result = gf_window_contains(address) ? gf_host_share(address) : CUDA_SUCCESS;
    }
    return result;
}
