#include "pool.h"
#include "memory.h"
#include "stream.h"
#include <stdlib.h>
#include <string.h>

struct sim_pool {
    struct sim_object object;
    struct sim_device *device;
    CUmemPoolProps properties;
    pthread_mutex_t lock;
    uint64_t used, used_high, reserved_high;
    uint64_t release_threshold;
    int reuse[3]; /* FOLLOW_EVENT_DEPENDENCIES, ALLOW_OPPORTUNISTIC, ALLOW_INTERNAL_DEPENDENCIES */
};

static void destroy(void *pointer) {
    struct sim_pool *pool = pointer;
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static struct sim_pool *pool_new(struct sim_device *device, const CUmemPoolProps *properties) {
    struct sim_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->device = device;
    pool->properties = *properties;
    for (size_t i = 0; i < SIM_COUNT(pool->reuse); i++)
        pool->reuse[i] = 1;
    pthread_mutex_init(&pool->lock, NULL);
    if (!sim_handle_open(pool, SIM_POOL, NULL, destroy)) {
        destroy(pool);
        return NULL;
    }
    return pool;
}

CUresult sim_pool_create_default(struct sim_device *device) {
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    device->default_pool = pool_new(device, &properties);
    if (!device->default_pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_store(&device->current_pool, device->default_pool->object.handle);
    return CUDA_SUCCESS;
}

uint64_t sim_pool_handle(const struct sim_pool *pool) {
    return pool->object.handle;
}

static CUresult acquire(CUmemoryPool handle, struct sim_pool **pool) {
    SIM_TRY(sim_enter());
    *pool = sim_acquire(SIM_HANDLE(handle), SIM_POOL);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Counts an allocation in; it holds a reference until it is returned. */
static bool take(struct sim_pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    bool fits = !pool->properties.maxSize || pool->used + bytes <= pool->properties.maxSize;
    if (fits) {
        pool->used += bytes;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
        if (pool->used > pool->reserved_high)
            pool->reserved_high = pool->used;
        sim_retain(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

static void returned(void *owner, uint64_t bytes) {
    struct sim_pool *pool = owner;
    pthread_mutex_lock(&pool->lock);
    pool->used -= bytes;
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
}

static CUresult allocate(struct sim_pool *pool, struct sim_context *context, size_t size, uint64_t *base) {
    uint64_t bytes = sim_round_up(size, SIM_PAGE);
    if (bytes < size || !take(pool, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_range *range = sim_memory_range(SIM_RANGE_POOL, pool->device, context, size, 0);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (range) {
        range->owner = pool;
        range->returned = returned;
        result = sim_memory_add(range);
    }
    if (result == CUDA_SUCCESS)
        *base = range->base;
    else
        returned(pool, bytes);
    return result;
}

static CUresult allocate_async(CUdeviceptr *pointer, size_t size, CUmemoryPool handle,
                               CUstream stream_handle) {
    struct sim_stream *stream;
    struct sim_pool *pool = NULL;
    SIM_REQUIRE(pointer && size);
    SIM_TRY(sim_stream_acquire(stream_handle, &stream));
    struct sim_device *device = stream->context->device;
    CUresult result =
        acquire(handle ? handle : (CUmemoryPool)(uintptr_t)atomic_load(&device->current_pool), &pool);
    if (result == CUDA_SUCCESS) {
        uint64_t base;
        result = allocate(pool, stream->context, size, &base);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            /* what is being freed may be reused, if need be by waiting for it */
            sim_device_drain(pool->device);
            result = allocate(pool, stream->context, size, &base);
        }
        if (result == CUDA_SUCCESS)
            *pointer = base;
        sim_release(pool);
    }
    sim_release(stream);
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream) {
    return allocate_async(pointer, size, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(pool);
    return allocate_async(pointer, size, pool, stream);
}

struct free_op {
    struct sim_op op;
    uint64_t base;
};

static CUresult free_now(struct sim_op *op) {
    sim_memory_delete(((struct free_op *)op)->base);
    return CUDA_SUCCESS;
}

static const struct sim_op_class free_class = {.run = free_now, .even_after_error = true};

static bool begin_freeing(struct sim_range *range, void *pointer) {
    if (range->kind != SIM_RANGE_POOL || range->freeing || range->base != *(uint64_t *)pointer)
        return false;
    range->freeing = true;
    return true;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    struct free_op *op = sim_op_new(sizeof *op, &free_class);
    CUresult result = op ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (op && pointer && !sim_ranges_change(&sim_memory, pointer, begin_freeing, &(uint64_t){pointer}))
        result = CUDA_ERROR_INVALID_VALUE;
    if (op && pointer && result == CUDA_SUCCESS) {
        op->base = pointer;
        sim_submit_and_forget(stream, &op->op);
    } else if (op) {
        sim_op_release(&op->op);
    }
    sim_release(stream);
    return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && properties && properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    SIM_REQUIRE(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    struct sim_device *device = sim_device_at(properties->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_pool *pool = pool_new(device, properties);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = SIM_POINTER(CUmemoryPool, pool);
    return CUDA_SUCCESS;
}

/* Its allocations live on; where it is the current pool, the default one takes its place. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct sim_pool *pool;
    SIM_TRY(acquire(handle, &pool));
    bool closed = pool != pool->device->default_pool && sim_handle_close(SIM_HANDLE(handle), SIM_POOL);
    if (closed) {
        uint64_t current = SIM_HANDLE(handle);
        atomic_compare_exchange_strong(&pool->device->current_pool, &current,
                                       pool->device->default_pool->object.handle);
        sim_release(pool);
    }
    sim_release(pool);
    return closed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    struct sim_pool *pool;
    (void)keep; /* a pool keeps nothing that is not in use */
    SIM_TRY(acquire(handle, &pool));
    sim_release(pool);
    return CUDA_SUCCESS;
}

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
        *(attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? &pool->used_high : &pool->reserved_high) = pool->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
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
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(uint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(uint64_t *)value = pool->reserved_high;
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
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct sim_pool *pool;
    SIM_REQUIRE(value);
    SIM_TRY(acquire(handle, &pool));
    pthread_mutex_lock(&pool->lock);
    CUresult result = set_attribute(pool, attribute, value);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct sim_pool *pool;
    SIM_REQUIRE(value);
    SIM_TRY(acquire(handle, &pool));
    pthread_mutex_lock(&pool->lock);
    CUresult result = get_attribute(pool, attribute, value);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
    return result;
}

/* Every simulated device reaches every other's memory, so access cannot be taken away. */
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct sim_pool *pool;
    SIM_REQUIRE(map || !count);
    SIM_TRY(acquire(handle, &pool));
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_at(map[i].location.id))
            result = CUDA_ERROR_INVALID_DEVICE;
    sim_release(pool);
    return result;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    struct sim_pool *pool;
    SIM_REQUIRE(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    SIM_TRY(acquire(handle, &pool));
    bool found = sim_device_at(location->id) != NULL;
    if (found)
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sim_release(pool);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult find_device(CUdevice ordinal, struct sim_device **device) {
    SIM_TRY(sim_enter());
    *device = sim_device_at(ordinal);
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
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
    SIM_TRY(acquire(handle, &pool));
    bool ours = pool->device == device;
    sim_release(pool);
    SIM_REQUIRE(ours);
    atomic_store(&device->current_pool, SIM_HANDLE(handle));
    return CUDA_SUCCESS;
}

static CUresult find_location(const CUmemLocation *location, CUmemAllocationType type) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(location && type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    return CUDA_SUCCESS;
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
