#include "pool.h"

#include "calls.h"
#include "capture.h"
#include "context.h"
#include "functions.h"
#include "ipc.h"
#include "stream.h"
#include "window.h"

bool gf_pool_open(void) {
    uint64_t handle;
    struct gf_memory_pool *pool = gf_memory_pool_new(&handle);
    if (pool == NULL) {
        return false;
    }
    pool->is_default = true;
    gf_object_publish(pool, handle, NULL);
    atomic_store(&gf_session.default_pool, handle);
    atomic_store(&gf_session.current_pool, handle);
    return true;
}

CUresult gf_memory_alloc_async(CUdeviceptr *address, size_t size, uint64_t handle, CUstream cuda_stream) {
    uint64_t stream, found = 0;
    struct gf_memory_pool *pool = gf_memory_pool_find((CUmemoryPool)handle);
    if (pool == NULL || pool->exporter != 0 || size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_wire_stream(cuda_stream, &stream);
    if (result == CUDA_SUCCESS && pool->max_size > 0 &&
        (size > pool->max_size || atomic_load(&pool->used) > pool->max_size - size)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 node = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                                          .bytesize = size};
    if (result == CUDA_SUCCESS && gf_capture_any() &&
        gf_capture_takes_telling(cuda_stream, GF_FORM_ALLOC, &node, &result)) {
        *address = result == CUDA_SUCCESS ? node.dptr : *address;
        return result;
    }
    if (result == CUDA_SUCCESS) {
        result = gf_window_alloc(size, gf_context_current_handle(), handle, stream, &found);
    }
    if (result == CUDA_SUCCESS) {
        *address = found;
    }
    return result;
}

CUresult gf_memory_free_async(CUdeviceptr address, CUstream cuda_stream) {
    struct gf_allocation allocation;
    uint64_t stream;
    CUresult result = gf_wire_stream(cuda_stream, &stream);
    if (result != CUDA_SUCCESS || address == 0 ||
        (gf_capture_any() && gf_capture_takes(cuda_stream, GF_FORM_FREE, &address, &result)) ||
        gf_graph_memory_free(address, &result)) {
        return result;
    }
    if (gf_ipc_close(address, GF_IPC_POOLED)) {
        return CUDA_SUCCESS;
    }
    bool of_pool = gf_window_find(address, &allocation) && allocation.pool != 0;
    return of_pool ? gf_window_free(address, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    CUresult result = (map == NULL && count > 0) || gf_memory_pool_find(pool) == NULL
                          ? CUDA_ERROR_INVALID_VALUE
                          : CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUmemAccess_flags flags = map[i].flags;
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (map[i].location.id < 0 || map[i].location.id >= gf_session.device_count ||
                   flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            result = CUDA_ERROR_INVALID_DEVICE; /* its own device's access cannot be taken away */
        }
    }
    return result;
}
