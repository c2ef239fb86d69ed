/* Which pool a device allocates from. */
#include "pool.h"

/* CUDA calls a device that there is not an invalid value here, but for the default pool an invalid device. */
static CUresult find_device(CUdevice ordinal, struct sim_device **device) {
    SIM_TRY(sim_enter());
    *device = sim_device_at(ordinal);
    SIM_REQUIRE(*device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    SIM_TRY(sim_enter());
    const struct sim_device *device = sim_device_at(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_REQUIRE(pool);
    *pool = SIM_POINTER(CUmemoryPool, device->default_pool);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(pool);
    *pool = (CUmemoryPool)(uintptr_t)atomic_load(&device->current_pool);
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
    struct sim_device *device;
    struct sim_pool *pool;
    SIM_TRY(find_device(ordinal, &device));
    SIM_TRY(sim_pool_acquire(handle, &pool));
    bool ours = pool->device == device && !pool->imported;
    sim_release(pool);
    SIM_REQUIRE(ours);
    atomic_store(&device->current_pool, SIM_HANDLE(handle));
    return CUDA_SUCCESS;
}

static CUresult find_location(const CUmemLocation *location, CUmemAllocationType type) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(location);
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) /* also of no location, whose number is that of INVALID */
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type != CU_MEM_LOCATION_TYPE_INVALID &&
                location->type <= CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN);
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    SIM_TRY(find_location(location, type));
    return cuDeviceGetDefaultMemPool(pool, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    SIM_TRY(find_location(location, type));
    return cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    SIM_TRY(find_location(location, type));
    return cuDeviceSetMemPool(location->id, pool);
}
