#include "host_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "context.h"
#include "functions.h"
#include "guest.h"
#include "host_call.h"
#include "log.h"
#include "pending.h"
#include "shared.h"
#include "window.h"

#define PAGE 4096ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_host_range *ranges; /* sorted by address */
static size_t range_count, range_capacity;
static _Atomic size_t locked_ranges;
static uint64_t next_id = 1ull << 32; /* apart from device allocations' */

/* Index of the first range that ends behind an address. */
static size_t position(uint64_t address) {
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].address + ranges[middle].size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static CUresult add(struct gf_host_range range, CUresult if_taken) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    size_t at = position(range.address);
    if (at < range_count && ranges[at].address < range.address + range.size) {
        result = if_taken;
    } else if (range_count == range_capacity) {
        size_t capacity = range_capacity == 0 ? 16 : 2 * range_capacity;
        struct gf_host_range *grown = realloc(ranges, capacity * sizeof *ranges);
        if (grown == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            ranges = grown;
            range_capacity = capacity;
        }
    }
    if (result == CUDA_SUCCESS) {
        memmove(&ranges[at + 1], &ranges[at], (range_count - at) * sizeof *ranges);
        range.id = next_id++;
        range.owner = gf_context_current_handle();
        ranges[at] = range;
        atomic_store(&locked_ranges, ++range_count);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static bool take(uint64_t address, bool registered, struct gf_host_range *range) {
    pthread_mutex_lock(&lock);
    size_t at = position(address);
    bool found = at < range_count && ranges[at].address == address && ranges[at].registered == registered;
    if (found) {
        *range = ranges[at];
        range_count--;
        memmove(&ranges[at], &ranges[at + 1], (range_count - at) * sizeof *ranges);
        atomic_store(&locked_ranges, range_count);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_host_find(uint64_t address, struct gf_host_range *range) {
    if (atomic_load_explicit(&locked_ranges, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    size_t at = position(address);
    bool found = at < range_count && ranges[at].address <= address;
    if (found) {
        *range = ranges[at];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_host_is_locked(const void *base, uint64_t size) {
    struct gf_host_range range;
    uint64_t address = (uint64_t)base;
    return gf_host_find(address, &range) && size <= range.size - (address - range.address);
}

/* The device reaches it at the same address. */
static CUresult alloc_mapped(void **memory, size_t size, unsigned flags) {
    uint64_t address;
    CUresult result = gf_shared_alloc(size, flags, false, &address);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = add((struct gf_host_range){.address = address, .size = size, .flags = flags},
                 CUDA_ERROR_OUT_OF_MEMORY);
    if (result != CUDA_SUCCESS) {
        gf_shared_end(address, false);
        gf_window_free(address, 0);
        return result;
    }
    *memory = (void *)address;
    return CUDA_SUCCESS;
}

CUresult gf_cuMemHostAlloc(void **pp, size_t bytesize, unsigned Flags) {
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pp == NULL || bytesize == 0 || (Flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((Flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0) {
        return alloc_mapped(pp, bytesize, Flags);
    }
    size_t size = (bytesize + PAGE - 1) / PAGE * PAGE;
    void *memory = size < bytesize
                       ? MAP_FAILED
                       : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        add((struct gf_host_range){.address = (uint64_t)memory, .size = bytesize, .flags = Flags},
            CUDA_ERROR_OUT_OF_MEMORY);
    if (result != CUDA_SUCCESS) {
        munmap(memory, size);
        return result;
    }
    *pp = memory;
    return CUDA_SUCCESS;
}

CUresult gf_cuMemFreeHost(void *p) {
    struct gf_host_range range;
    if (p == NULL) {
        return CUDA_SUCCESS;
    }
    if (!take((uint64_t)p, false, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_host_calls_settle(range.owner);
    if ((range.flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0) {
        gf_cuCtxSynchronize();
        return gf_shared_end(range.address, false) ? gf_window_free(range.address, 0)
                                                   : CUDA_ERROR_INVALID_VALUE;
    }
    gf_pending_wait(p, range.size);
    munmap(p, (range.size + PAGE - 1) / PAGE * PAGE);
    return CUDA_SUCCESS;
}

CUresult gf_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned Flags) {
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    const unsigned others = CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (p == NULL || bytesize == 0 || (Flags & ~(known | others)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((Flags & others) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return add(
        (struct gf_host_range){.address = (uint64_t)p, .size = bytesize, .flags = Flags, .registered = true},
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

CUresult gf_cuMemHostUnregister(void *p) {
    struct gf_host_range range;
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!take((uint64_t)p, true, &range)) {
        return gf_host_find((uint64_t)p, &range) ? CUDA_ERROR_INVALID_VALUE /* allocated, or within */
                                                 : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    gf_host_calls_settle(range.owner);
    gf_pending_wait(p, range.size);
    return CUDA_SUCCESS;
}

CUresult gf_cuMemHostGetFlags(unsigned *pFlags, void *p) {
    struct gf_host_range range;
    if (pFlags == NULL || !gf_host_find((uint64_t)p, &range) || range.registered) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pFlags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP; /* as the driver says of all memory it allocates */
    return CUDA_SUCCESS;
}

CUresult gf_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned Flags) {
    struct gf_host_range range;
    if (pdptr == NULL || Flags != 0 || !gf_host_find((uint64_t)p, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range.registered || (range.flags & CU_MEMHOSTALLOC_DEVICEMAP) == 0) {
        gf_info("page-locked memory that was not allocated with DEVICEMAP cannot be reached by the device");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *pdptr = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}
