/* Making, destroying and trimming pools, and what they reserve. */
#include "pool.h"
#include "memory.h"
#include <stdlib.h>

/* Taken before a pool's lock. */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_pool *pools;
static _Atomic uint64_t kept_anywhere; /* bytes */

static void destroy(void *pointer) {
    struct sim_pool *pool = pointer;
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *properties) {
    struct sim_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->device = device;
    pool->properties = *properties;
    pool->reachable = sim_device_bit(device);
    for (size_t i = 0; i < SIM_COUNT(pool->reuse); i++)
        pool->reuse[i] = 1;
    pthread_mutex_init(&pool->lock, NULL);
    if (!sim_handle_open(pool, SIM_POOL, NULL, destroy)) {
        destroy(pool);
        return NULL;
    }
    pthread_mutex_lock(&pools_lock);
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
    return pool;
}

CUresult sim_pool_create_default(struct sim_device *device) {
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    device->default_pool = sim_pool_new(device, &properties);
    if (!device->default_pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_store(&device->current_pool, device->default_pool->object.handle);
    return CUDA_SUCCESS;
}

uint64_t sim_pool_handle(const struct sim_pool *pool) {
    return pool->object.handle;
}

CUresult sim_pool_acquire(CUmemoryPool handle, struct sim_pool **pool) {
    SIM_TRY(sim_enter());
    *pool = sim_acquire(SIM_HANDLE(handle), SIM_POOL);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

uint64_t sim_pool_reserved(const struct sim_pool *pool) {
    return pool->taken + pool->freeing + pool->kept_bytes;
}

bool sim_pool_keep(struct sim_pool *pool, struct sim_range *range) {
    uint64_t bytes = sim_round_up(range->size, SIM_PAGE);
    if (pool->closed || range->file || !sim_pages_allow(range->base, sim_memory_reachable(range), false))
        return false;
    range->left = pool->kept;
    pool->kept = range;
    pool->kept_bytes += bytes;
    pool->freeing -= bytes;
    atomic_fetch_add(&kept_anywhere, bytes);
    return true;
}

static void unlink_kept(struct sim_pool *pool, struct sim_range **link, uint64_t bytes) {
    *link = (*link)->left;
    pool->kept_bytes -= bytes;
    atomic_fetch_sub(&kept_anywhere, bytes);
}

struct sim_range *sim_pool_take_kept(struct sim_pool *pool, uint64_t bytes) {
    for (struct sim_range **link = &pool->kept; *link; link = &(*link)->left) {
        struct sim_range *range = *link;
        if (sim_round_up(range->size, SIM_PAGE) == bytes &&
            sim_pages_allow(range->base, sim_memory_reachable(range), true)) {
            unlink_kept(pool, link, bytes);
            return range;
        }
    }
    return NULL;
}

void sim_pool_shrink(struct sim_pool *pool, uint64_t least) {
    for (struct sim_range **link = &pool->kept; *link;) {
        struct sim_range *range = *link;
        uint64_t bytes = sim_round_up(range->size, SIM_PAGE);
        if (sim_pool_reserved(pool) - bytes < least) {
            link = &range->left; /* a smaller one may go */
            continue;
        }
        unlink_kept(pool, link, bytes);
        sim_pages_free(range->base, sim_memory_reachable(range));
        sim_device_refund(pool->device, bytes);
        free(range);
    }
}

void sim_pools_shrink(const struct sim_device *device) {
    pthread_mutex_lock(&pools_lock);
    for (struct sim_pool *pool = pools; pool; pool = pool->next) {
        pthread_mutex_lock(&pool->lock);
        if (pool->device == device)
            sim_pool_shrink(pool, 0);
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pools_lock);
}

void sim_pools_settle(void) {
    if (!atomic_load(&kept_anywhere))
        return;
    pthread_mutex_lock(&pools_lock);
    for (struct sim_pool *pool = pools; pool; pool = pool->next) {
        pthread_mutex_lock(&pool->lock);
        if (sim_pool_reserved(pool) > pool->release_threshold)
            sim_pool_shrink(pool, pool->release_threshold);
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pools_lock);
}

static void close_pool(struct sim_pool *pool) {
    pthread_mutex_lock(&pools_lock);
    for (struct sim_pool **link = &pools; *link; link = &(*link)->next)
        if (*link == pool) {
            *link = pool->next;
            break;
        }
    pthread_mutex_unlock(&pools_lock);
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    sim_pool_shrink(pool, 0);
    pthread_mutex_unlock(&pool->lock);
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && properties);
    if (properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (properties->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    struct sim_device *device = sim_device_at(properties->location.id);
    SIM_REQUIRE(device);
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        properties->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_pool *pool = sim_pool_new(device, properties);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = SIM_POINTER(CUmemoryPool, pool);
    return CUDA_SUCCESS;
}

/* Its allocations live on; where it is the current pool, the default one takes its place. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct sim_pool *pool;
    SIM_TRY(sim_pool_acquire(handle, &pool));
    bool closed = pool != pool->device->default_pool && sim_handle_close(SIM_HANDLE(handle), SIM_POOL);
    if (closed) {
        uint64_t current = SIM_HANDLE(handle);
        atomic_compare_exchange_strong(&pool->device->current_pool, &current,
                                       pool->device->default_pool->object.handle);
        close_pool(pool);
        sim_release(pool);
    }
    sim_release(pool);
    return closed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    struct sim_pool *pool;
    SIM_TRY(sim_pool_acquire(handle, &pool));
    pthread_mutex_lock(&pool->lock);
    sim_pool_shrink(pool, keep);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return CUDA_SUCCESS;
}
