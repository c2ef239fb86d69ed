/* Memory pools that processes of a program share: a descriptor tells which pool of which process it is, and
 * 64 bytes which allocation in it. An imported pool holds nothing here. */
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "descriptor.h"
#include "objects.h"
#include "session.h"
#include "window.h"

CUresult gf_pool_export(void *descriptor, const struct gf_memory_pool *pool, CUmemAllocationHandleType type) {
    struct gf_ipc_handle handle = gf_ipc_handle(GF_IPC_POOL);
    int kept;
    if (descriptor == NULL || pool->exporter != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pool->handle_types != type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle.detail = atomic_load(&pool->object.handle);
    handle.device = gf_ipc_device_name(pool->device);
    if (!gf_descriptor_make(&handle, descriptor, &kept)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    close(kept); /* the pool lives without descriptors: what was written stays */
    return CUDA_SUCCESS;
}

CUresult gf_pool_import(CUmemoryPool *out, const void *descriptor, CUmemAllocationHandleType type) {
    struct gf_ipc_handle told;
    uint64_t handle;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !gf_descriptor_read((int)(intptr_t)descriptor, &told) ||
        gf_ipc_check(&told, GF_IPC_POOL) == CUDA_ERROR_INVALID_VALUE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct gf_memory_pool *pool = gf_memory_pool_new(&handle);
    if (pool == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->device = gf_ipc_device(&told);
    pool->handle_types = type;
    pool->exporter = told.session;
    pool->exported = told.detail;
    gf_object_publish(pool, handle, NULL);
    *out = (CUmemoryPool)handle;
    return CUDA_SUCCESS;
}

CUresult gf_pool_export_pointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
    struct gf_ipc_handle handle = gf_ipc_handle(GF_IPC_POOLED);
    struct gf_allocation allocation;
    const struct gf_memory_pool *pool =
        data != NULL && gf_window_find(address, &allocation) && allocation.pool != 0
            ? gf_memory_pool_find((CUmemoryPool)allocation.pool)
            : NULL;
    if (pool == NULL || pool->handle_types == CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle.detail = allocation.pool;
    CUresult result = gf_ipc_offer(&allocation, &handle);
    if (result == CUDA_SUCCESS) {
        memcpy(data, &handle, sizeof handle);
    }
    return result;
}

CUresult gf_pool_import_pointer(CUdeviceptr *address, const struct gf_memory_pool *pool,
                                const CUmemPoolPtrExportData *data) {
    struct gf_ipc_handle told;
    uint64_t found;
    if (data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&told, data, sizeof told);
    if (pool->exporter == 0 || told.session != pool->exporter || told.detail != pool->exported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_ipc_check(&told, GF_IPC_POOLED);
    result = result == CUDA_SUCCESS ? gf_ipc_open(&told, 0, &found) : result; /* of no context */
    if (result == CUDA_SUCCESS) {
        *address = found;
    }
    return result;
}
