/* What pools tell of themselves, and who may use their memory. */
#include "pool.h"

static CUresult set_attribute(struct sim_pool *pool, CUmemPool_attribute attribute, const void *value) {
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(const uint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        SIM_REQUIRE(*(const uint64_t *)value == 0); /* the marks can only be reset */
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = pool->used;
        else
            pool->reserved_high = sim_pool_reserved(pool);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* A pool takes physical memory, of which there are granules alone: its size tells of nothing smaller. */
static uint64_t in_steps(uint64_t bytes) {
    return sim_round_up(bytes, SIM_GRANULARITY);
}

static CUresult get_attribute(struct sim_pool *pool, CUmemPool_attribute attribute, void *value) {
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(uint64_t *)value = pool->release_threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(uint64_t *)value = in_steps(sim_pool_reserved(pool));
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(uint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(uint64_t *)value = in_steps(pool->reserved_high);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(uint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        *(CUmemAllocationType *)value = pool->properties.allocType;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        *(CUmemAllocationHandleType *)value = pool->properties.handleTypes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        *(int *)value = pool->properties.location.id;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        *(CUmemLocationType *)value = pool->properties.location.type;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *(uint64_t *)value = pool->properties.maxSize;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        *(int *)value = (pool->properties.usage & CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS) != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID:
        *(int *)value = -1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct sim_pool *pool;
    SIM_REQUIRE(value);
    SIM_TRY(sim_pool_acquire(handle, &pool));
    pthread_mutex_lock(&pool->lock);
    CUresult result = set_attribute(pool, attribute, value);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct sim_pool *pool;
    SIM_REQUIRE(value);
    SIM_TRY(sim_pool_acquire(handle, &pool));
    pthread_mutex_lock(&pool->lock);
    CUresult result = get_attribute(pool, attribute, value);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return result;
}

static CUresult check_access(const struct sim_pool *pool, const CUmemAccessDesc *one) {
    SIM_REQUIRE(one->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    SIM_REQUIRE(one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                one->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const struct sim_device *device = sim_device_at(one->location.id);
    bool revoked = device == pool->device && one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return device && !revoked ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Remembered, but not enforced: every simulated device reaches every other's memory. */
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct sim_pool *pool;
    SIM_REQUIRE(map || !count);
    SIM_TRY(sim_pool_acquire(handle, &pool));
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_access(pool, &map[i]);
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        uint64_t device = UINT64_C(1) << map[i].location.id;
        bool allowed = map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        pool->reachable = allowed ? pool->reachable | device : pool->reachable & ~device;
    }
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return result;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    struct sim_pool *pool;
    SIM_REQUIRE(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    SIM_REQUIRE(sim_device_at(location->id));
    SIM_TRY(sim_pool_acquire(handle, &pool));
    pthread_mutex_lock(&pool->lock);
    *flags = pool->reachable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return CUDA_SUCCESS;
}
