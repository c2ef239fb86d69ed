/* Stream-ordered memory: one pool, the device's default one, over the same window as everything else. */
#include <pthread.h>

#include "context.h"
#include "functions.h"
#include "stream.h"
#include "window.h"
#include "wire/handle.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cuuint64_t release_threshold;
static int reuse[] = {1, 1, 1}; /* follow event dependencies, opportunistic, internal dependencies */

static uint64_t pool_handle(void) {
    return gf_handle_make(GF_HANDLE_MEMORY_POOL, 0, 0);
}

static CUresult check_pool(CUmemoryPool pool) {
    return (uint64_t)pool == pool_handle() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_pool(CUmemoryPool *pool, CUdevice dev) {
    if (pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (dev < 0 || dev >= gf_session.device_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pool = (CUmemoryPool)pool_handle();
    return CUDA_SUCCESS;
}

static CUresult get_pool_of(CUmemoryPool *pool, const CUmemLocation *location, CUmemAllocationType type) {
    if (location == NULL || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return location->type != CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_NOT_SUPPORTED
                                                         : get_pool(pool, location->id);
}

CUresult gf_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    return get_pool(pool_out, dev);
}

CUresult gf_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    return get_pool(pool, dev);
}

CUresult gf_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    CUmemoryPool unused;
    CUresult result = get_pool(&unused, dev);
    return result != CUDA_SUCCESS ? result : check_pool(pool);
}

CUresult gf_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                   CUmemAllocationType type) {
    return get_pool_of(pool_out, location, type);
}

CUresult gf_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return get_pool_of(pool, location, type);
}

/* The window keeps and gives back backing by its own rule. */
CUresult gf_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    return check_pool(pool);
}

CUresult gf_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    uint64_t now, high;
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : check_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&lock);
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        release_threshold = *(cuuint64_t *)value;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(cuuint64_t *)value == 0) {
            gf_window_pool_use(&now, &high, true);
        } else {
            result = CUDA_ERROR_INVALID_VALUE;
        }
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult gf_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    uint64_t now, high;
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : check_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    gf_window_pool_use(&now, &high, false);
    pthread_mutex_lock(&lock);
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = release_threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = now;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = high;
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult gf_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    CUresult result = map == NULL && count > 0 ? CUDA_ERROR_INVALID_VALUE : check_pool(pool);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].location.id < 0 ||
            map[i].location.id >= gf_session.device_count) {
            result = CUDA_ERROR_INVALID_DEVICE;
        } else if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            result = CUDA_ERROR_INVALID_VALUE; /* its own device's access cannot be taken away */
        }
    }
    return result;
}

CUresult gf_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location) {
    CUresult result = flags == NULL || location == NULL ? CUDA_ERROR_INVALID_VALUE : check_pool(memPool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id < 0 ||
        location->id >= gf_session.device_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

CUresult gf_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    uint64_t stream, address = 0;
    if (dptr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_wire_stream(hStream, &stream);
    if (result == CUDA_SUCCESS && bytesize > 0) {
        result = gf_window_alloc(bytesize, gf_context_current_handle(), true, stream, &address);
    }
    if (result == CUDA_SUCCESS) {
        *dptr = address;
    }
    return result;
}

CUresult gf_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    CUresult result = check_pool(pool);
    return result != CUDA_SUCCESS ? result : gf_cuMemAllocAsync(dptr, bytesize, hStream);
}

CUresult gf_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    uint64_t stream;
    CUresult result = gf_wire_stream(hStream, &stream);
    if (result != CUDA_SUCCESS || dptr == 0) {
        return result;
    }
    return gf_window_free(dptr, stream);
}
