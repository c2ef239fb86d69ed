/* Stream-ordered allocation. Memory is the caller's at once; what is freed comes back when its stream gets
 * there. */
#include "capture.h"
#include "memory.h"
#include "pool.h"
#include "stream.h"

/* Counts an allocation in, which holds a reference until it is returned; it may be in memory that was kept.
 */
static bool take(struct sim_pool *pool, uint64_t bytes, struct sim_range **kept) {
    pthread_mutex_lock(&pool->lock);
    uint64_t most = pool->properties.maxSize;
    *kept = sim_pool_take_kept(pool, bytes);
    if (!*kept && most && sim_pool_reserved(pool) + bytes > most)
        sim_pool_shrink(pool, 0);
    bool fits = *kept || !most || pool->used + bytes <= most;
    if (fits) {
        pool->used += bytes;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
        if (sim_pool_reserved(pool) > pool->reserved_high)
            pool->reserved_high = sim_pool_reserved(pool);
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

/* In memory that was kept: it is charged already, and its address is nobody else's. */
static void allocate_again(struct sim_range *range, struct sim_context *context, size_t size) {
    range->size = size;
    range->context = context;
    range->id = sim_memory_next_id();
    range->freeing = range->sync_memops = false;
    sim_ranges_insert(&sim_memory, range);
}

static CUresult allocate(struct sim_pool *pool, struct sim_context *context, size_t size, uint64_t *base) {
    uint64_t bytes = sim_round_up(size, SIM_PAGE);
    struct sim_range *kept;
    if (bytes < size || !take(pool, bytes, &kept))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (kept) {
        *base = kept->base;
        allocate_again(kept, context, size);
        return CUDA_SUCCESS;
    }
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

/* In a captured stream: a node allocates, at each launch, at the address that is known now. */
static bool captured(struct sim_stream *stream, const struct sim_pool *pool, size_t size,
                     CUdeviceptr *pointer, CUresult *result) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                .alloc = {.poolProps = pool->properties, .bytesize = size}};
    params.alloc.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    if (!sim_capture_takes_params(stream, &params, result))
        return false;
    if (*result == CUDA_SUCCESS)
        *pointer = params.alloc.dptr;
    return true;
}

static CUresult allocate_from(struct sim_pool *pool, struct sim_context *context, size_t size,
                              CUdeviceptr *pointer) {
    uint64_t base;
    CUresult result = allocate(pool, context, size, &base);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        /* what is being freed may be reused, if need be by waiting for it, and so is what pools keep */
        sim_device_drain(pool->device);
        sim_pools_shrink(pool->device);
        result = allocate(pool, context, size, &base);
    }
    if (result == CUDA_SUCCESS)
        *pointer = base;
    return result;
}

static CUresult allocate_async(CUdeviceptr *pointer, size_t size, CUmemoryPool handle,
                               CUstream stream_handle) {
    struct sim_stream *stream;
    struct sim_pool *pool = NULL;
    SIM_REQUIRE(pointer);
    SIM_TRY(sim_stream_acquire(stream_handle, &stream));
    struct sim_device *device = stream->context->device;
    CUresult result = sim_pool_acquire(
        handle ? handle : (CUmemoryPool)(uintptr_t)atomic_load(&device->current_pool), &pool);
    if (result == CUDA_SUCCESS && pool->imported) {
        result = CUDA_ERROR_INVALID_VALUE;
        sim_release(pool);
    } else if (result == CUDA_SUCCESS) {
        if (size == 0) /* other than with cuMemAlloc */
            *pointer = 0;
        else if (!captured(stream, pool, size, pointer, &result))
            result = allocate_from(pool, stream->context, size, pointer);
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
    struct sim_range *range = sim_ranges_remove(&sim_memory, ((struct free_op *)op)->base, NULL);
    if (!range) /* it went with its context */
        return CUDA_SUCCESS;
    struct sim_pool *pool = range->owner;
    pthread_mutex_lock(&pool->lock);
    bool kept = sim_pool_keep(pool, range);
    pthread_mutex_unlock(&pool->lock);
    if (kept)
        sim_release(pool);
    else
        sim_memory_dispose(range);
    return CUDA_SUCCESS;
}

static const struct sim_op_class free_class = {.run = free_now, .even_after_error = true};

static bool begin_freeing(struct sim_range *range, void *pointer) {
    if (range->kind != SIM_RANGE_POOL || range->freeing || range->base != *(uint64_t *)pointer)
        return false;
    range->freeing = true;
    return true;
}

static CUresult free_in(struct sim_stream *stream, uint64_t pointer) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = pointer}};
    CUresult result;
    struct sim_range range;
    if (!pointer)
        return CUDA_SUCCESS;
    if (sim_capture_takes_params(stream, &params, &result))
        return result;
    if (sim_ranges_find(&sim_memory, pointer, &range) && range.base == pointer && range.free_it)
        return range.free_it(pointer);
    struct free_op *op = sim_op_new(sizeof *op, &free_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_ranges_change(&sim_memory, pointer, begin_freeing, &pointer)) {
        sim_op_discard(&op->op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    op->base = pointer;
    return sim_submit_and_forget(stream, &op->op);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = free_in(stream, pointer);
    sim_release(stream);
    return result;
}
