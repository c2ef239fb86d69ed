/* Memory pools that processes share: a descriptor names the pool, and 64 bytes each allocation in it. */
#define _GNU_SOURCE
#include "ipc_memory.h"
#include "memory.h"
#include "pool.h"
#include "shareable.h"
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PREFIX "pool-"

_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(struct sim_ipc_handle), "CUDA says how long it is");

/* Lock of the pool held. */
static CUresult name(struct sim_pool *pool) {
    if (pool->secret || getrandom(&pool->secret, sizeof pool->secret, 0) == sizeof pool->secret)
        return CUDA_SUCCESS;
    return CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult export(struct sim_pool *pool, int *descriptor) {
    SIM_REQUIRE(!pool->imported && pool->properties.handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    pthread_mutex_lock(&pool->lock);
    CUresult result = name(pool);
    pthread_mutex_unlock(&pool->lock);
    SIM_TRY(result);
    int file = sim_shareable_new(PREFIX, pool->device, SIM_PAGE);
    if (file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pwrite(file, &pool->secret, sizeof pool->secret, 0) != sizeof pool->secret) {
        close(file);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *descriptor = file;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
    struct sim_pool *pool;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && flags == 0);
    SIM_TRY(sim_pool_acquire(handle, &pool));
    CUresult result =
        type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? export(pool, out) : CUDA_ERROR_INVALID_VALUE;
    sim_release(pool);
    return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *shared, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    struct sim_device *device;
    uint64_t size, secret;
    int file = (int)(intptr_t)shared;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    SIM_REQUIRE(sim_shareable_check(file, PREFIX, &device, &size) && device);
    SIM_REQUIRE(pread(file, &secret, sizeof secret, 0) == sizeof secret && secret);
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    struct sim_pool *pool = sim_pool_new(device, &properties);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->imported = true;
    pool->secret = secret;
    *out = SIM_POINTER(CUmemoryPool, pool);
    return CUDA_SUCCESS;
}

/* As the memory is of no context, none is asked for: cuda.core has a thread of its queue export what it
 * sends. */
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr pointer) {
    struct sim_ipc_handle handle;
    struct sim_range range;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && sim_ranges_find(&sim_memory, pointer, &range) && range.kind == SIM_RANGE_POOL);
    struct sim_pool *pool = range.owner;
    SIM_REQUIRE(pool->properties.handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    pthread_mutex_lock(&pool->lock);
    CUresult result = name(pool);
    pthread_mutex_unlock(&pool->lock);
    SIM_TRY(result);
    SIM_TRY(sim_ipc_offer(pointer, SIM_RANGE_POOL, SIM_IPC_POOLED, &handle));
    handle.detail = pool->secret;
    memcpy(out, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool_handle, CUmemPoolPtrExportData *data) {
    struct sim_ipc_handle handle;
    struct sim_pool *pool;
    uint64_t base;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && data);
    SIM_TRY(sim_pool_acquire(pool_handle, &pool));
    memcpy(&handle, data, sizeof handle);
    bool of_pool = pool->imported && handle.detail == pool->secret;
    sim_release(pool);
    SIM_REQUIRE(of_pool);
    SIM_TRY(sim_ipc_import(&handle, SIM_IPC_POOLED, NULL, &base));
    *out = base;
    return CUDA_SUCCESS;
}
