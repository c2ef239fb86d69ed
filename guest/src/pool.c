#include "pool.h"

#include "calls.h"
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "freeing.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "ipc.h"
#include "mirror.h"
#include "pool_use.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

bool gf_pool_open(void) {
    for (int device = 0; device < gf_session.device_count; device++) {
        uint64_t handle;
        struct gf_memory_pool *pool = gf_memory_pool_new(&handle);
        if (pool == NULL) {
            return false;
        }
        pool->is_default = true;
        pool->device = device;
        gf_object_publish(pool, handle, NULL);
        atomic_store(&gf_session.default_pools[device], handle);
        atomic_store(&gf_session.current_pools[device], handle);
    }
    return true;
}

CUresult gf_memory_alloc_async(CUdeviceptr *address, size_t size, uint64_t handle, CUstream cuda_stream) {
    uint64_t stream, found = 0;
    CUdevice device;
    CUresult result = gf_stream_device(cuda_stream, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    handle = handle == 0 ? atomic_load(&gf_session.current_pools[device]) : handle;
    struct gf_memory_pool *pool = gf_memory_pool_find((CUmemoryPool)handle);
    if (pool == NULL || pool->exporter != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = gf_wire_stream(cuda_stream, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (size == 0) { /* other than with cuMemAlloc */
        *address = 0;
        return CUDA_SUCCESS;
    }
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 node = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pool->device}},
        .bytesize = size};
    if (gf_capture_any() && gf_capture_takes_telling(cuda_stream, GF_FORM_ALLOC, &node, &result)) {
        *address = result == CUDA_SUCCESS ? node.dptr : *address;
        return result; /* of memory for graphs, whatever this pool may have */
    }
    if (pool->max_size > 0 && (size > pool->max_size || atomic_load(&pool->used) > pool->max_size - size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Of no context: it is there until it is freed. */
    result = gf_window_alloc(pool->device, size, 0, handle, stream, &found);
    if (result == CUDA_SUCCESS) {
        *address = found;
    }
    return result;
}

CUresult gf_memory_free_async(CUdeviceptr address, CUstream cuda_stream) {
    struct gf_allocation allocation;
    struct gf_shared shared;
    struct gf_mirror mirror;
    uint64_t stream;
    CUresult result = gf_usable_stream(cuda_stream, &stream);
    if (result != CUDA_SUCCESS || address == 0 ||
        (gf_capture_any() && gf_capture_takes(cuda_stream, GF_FORM_FREE, &address, &result)) ||
        gf_graph_memory_free(address, &result)) {
        return result;
    }
    if (gf_ipc_close(address, GF_IPC_POOLED)) {
        return CUDA_SUCCESS;
    }
    /* Of cuMemAlloc too, which then ends in stream order. */
    bool ours = gf_window_find(address, &allocation) && !gf_shared_find(address, &shared) &&
                !gf_mirror_find(address, false, &mirror);
    return ours ? gf_window_free(address, stream) : CUDA_ERROR_INVALID_VALUE;
}

/* What a pool keeps is a book: the window may have given the memory back before, or give it to others. */
CUresult gf_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    struct gf_memory_pool *found = gf_memory_pool_find(pool);
    if (found == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_pool_keep(found, minBytesToKeep);
    gf_window_trim(found->device);
    gf_window_settle(false);
    return CUDA_SUCCESS;
}

static CUresult check_access(const struct gf_memory_pool *pool, const CUmemAccessDesc *one) {
    int device = one->location.id;
    bool none = one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (one->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (!none && one->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Its own device's access cannot be taken away. */
    return gf_is_device(device) && !(none && device == pool->device) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_access(struct gf_memory_pool *pool, const CUmemAccessDesc *one) {
    int device = one->location.id;
    bool none = one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    struct gf_req_sessionReach request = {.device = device, .owner = pool->device};
    bool opens = !none && gf_session.links[device][pool->device].can_access;
    if (opens) {
        gf_access_begins();
    }
    CUresult result = opens ? gf_send_struct(GF_OP_sessionReach, &request) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        atomic_store(&pool->access[device], (uint8_t)one->flags);
    }
    return result;
}

CUresult gf_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    struct gf_memory_pool *found = gf_memory_pool_find(pool);
    CUresult result = found == NULL || (map == NULL && count > 0) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = check_access(found, &map[i]);
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = set_access(found, &map[i]);
    }
    return result;
}
