/* Stream-ordered allocation. Memory is the caller's at once; what is freed comes back when its stream gets
 * there. */
#include "capture.h"
#include "memory.h"
#include "pool.h"
#include "stream.h"

struct sim_pool_free {
    struct sim_op op;
    uint64_t base, size;
    struct sim_pool *pool;            /* with a reference */
    const struct sim_stream *stream;  /* that may allocate it again; NULL: none */
    struct sim_pool_free *next, **at; /* `at`: NULL if it is in no list, and has nothing to do any more */
};

/* Lock held. */
static void unlink_free(struct sim_pool_free *op) {
    *op->at = op->next;
    if (op->next)
        op->next->at = op->at;
    op->at = NULL;
}

static uint64_t pages_of(uint64_t size) {
    return sim_round_up(size, SIM_PAGE);
}

/* Lock held. */
static void use(struct sim_pool *pool, uint64_t size) {
    pool->taken += pages_of(size);
    pool->used += sim_round_up(size, SIM_POOL_UNIT);
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (sim_pool_reserved(pool) > pool->reserved_high)
        pool->reserved_high = sim_pool_reserved(pool);
}

/* Lock held. */
static void leave(struct sim_pool *pool, uint64_t size) {
    pool->taken -= pages_of(size);
    pool->used -= sim_round_up(size, SIM_POOL_UNIT);
}

/* Counts an allocation in, which holds a reference until it is returned; it may be in memory that was kept.
 */
static bool take(struct sim_pool *pool, uint64_t size, struct sim_range **kept) {
    pthread_mutex_lock(&pool->lock);
    uint64_t most = pool->properties.maxSize, bytes = pages_of(size);
    *kept = sim_pool_take_kept(pool, bytes);
    if (!*kept && most && sim_pool_reserved(pool) + bytes > most)
        sim_pool_shrink(pool, 0);
    bool fits = *kept || !most || pool->taken + pool->freeing + bytes <= most;
    if (fits) {
        use(pool, size);
        sim_retain(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

static void returned(void *owner, uint64_t size) {
    struct sim_pool *pool = owner;
    pthread_mutex_lock(&pool->lock);
    leave(pool, size);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
}

/* As `returned`, of memory whose cuMemFreeAsync was called. */
static void returned_late(void *owner, uint64_t size) {
    struct sim_pool *pool = owner;
    pthread_mutex_lock(&pool->lock);
    pool->freeing -= pages_of(size);
    pthread_mutex_unlock(&pool->lock);
    sim_release(pool);
}

struct again {
    uint64_t base;
    size_t size;
};

/* It is charged already, and its address is nobody else's. */
static bool allocate_again(struct sim_range *range, void *argument) {
    const struct again *again = argument;
    if (range->base != again->base || !range->freeing)
        return false;
    range->size = again->size;
    range->id = sim_memory_next_id();
    range->freeing = range->sync_memops = false;
    range->returned = returned;
    return true;
}

/* What this stream freed, whether it has got there or not: its operations come one after another. */
static bool take_freed(struct sim_pool *pool, const struct sim_stream *stream, size_t size, uint64_t *base) {
    uint64_t bytes = pages_of(size);
    bool found = false;
    pthread_mutex_lock(&pool->lock);
    for (struct sim_pool_free *op = pool->frees, *next; op && !found; op = next) {
        next = op->next;
        if (op->stream != stream || pages_of(op->size) != bytes)
            continue;
        struct again again = {.base = op->base, .size = size};
        unlink_free(op);
        found = sim_ranges_change(&sim_memory, op->base, allocate_again, &again);
        if (found) {
            pool->freeing -= bytes;
            use(pool, size);
            *base = op->base;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

static CUresult allocate(struct sim_pool *pool, const struct sim_stream *stream, size_t size,
                         uint64_t *base) {
    struct sim_range *kept;
    if (pages_of(size) < size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (take_freed(pool, stream, size, base))
        return CUDA_SUCCESS;
    if (!take(pool, size, &kept))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (kept) {
        *base = kept->base;
        allocate_again(kept, &(struct again){.base = *base, .size = size});
        sim_ranges_insert(&sim_memory, kept);
        return CUDA_SUCCESS;
    }
    /* Of no context: a pool is its device's, and what was allocated is there until it is freed. */
    struct sim_range *range = sim_memory_range(SIM_RANGE_POOL, pool->device, NULL, size, 0);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (range) {
        range->owner = pool;
        range->returned = returned;
        result = sim_memory_add(range);
    }
    if (result == CUDA_SUCCESS)
        *base = range->base;
    else
        returned(pool, size);
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

static CUresult allocate_from(struct sim_pool *pool, const struct sim_stream *stream, size_t size,
                              CUdeviceptr *pointer) {
    uint64_t base;
    CUresult result = allocate(pool, stream, size, &base);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        /* what is being freed may be reused, if need be by waiting for it, and so is what pools keep */
        sim_device_drain(pool->device);
        sim_pools_shrink(pool->device);
        result = allocate(pool, stream, size, &base);
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
            result = allocate_from(pool, stream, size, pointer);
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

static bool is_freeing(struct sim_range *range) {
    return range->kind == SIM_RANGE_POOL && range->freeing;
}

static CUresult free_now(struct sim_op *op) {
    struct sim_pool_free *this = (struct sim_pool_free *)op;
    struct sim_pool *pool = this->pool;
    pthread_mutex_lock(&pool->lock);
    bool waits = this->at != NULL;
    if (waits)
        unlink_free(this);
    pthread_mutex_unlock(&pool->lock);
    struct sim_range *range = waits ? sim_ranges_remove(&sim_memory, this->base, is_freeing) : NULL;
    if (!range) /* it was allocated again */
        return CUDA_SUCCESS;
    pthread_mutex_lock(&pool->lock);
    bool kept = sim_pool_keep(pool, range);
    pthread_mutex_unlock(&pool->lock);
    if (kept)
        sim_release(pool);
    else
        sim_memory_dispose(range);
    return CUDA_SUCCESS;
}

static void drop_free(struct sim_op *op) {
    struct sim_pool_free *this = (struct sim_pool_free *)op;
    if (!this->pool)
        return;
    pthread_mutex_lock(&this->pool->lock);
    if (this->at)
        unlink_free(this);
    pthread_mutex_unlock(&this->pool->lock);
    sim_release(this->pool);
}

static const struct sim_op_class free_class = {.run = free_now, .drop = drop_free, .even_after_error = true};

static bool begin_freeing(struct sim_range *range, void *argument) {
    struct sim_pool_free *op = argument;
    if (range->kind != SIM_RANGE_POOL || range->freeing || range->base != op->base)
        return false;
    range->freeing = true;
    range->returned = returned_late;
    op->size = range->size;
    op->pool = range->owner;
    if (range->file)
        op->stream = NULL; /* other processes may still have it */
    sim_retain(op->pool);
    return true;
}

static void begin(struct sim_pool_free *op) {
    struct sim_pool *pool = op->pool;
    pthread_mutex_lock(&pool->lock);
    leave(pool, op->size);
    pool->freeing += pages_of(op->size);
    op->next = pool->frees;
    op->at = &pool->frees;
    if (op->next)
        op->next->at = &op->next;
    pool->frees = op;
    pthread_mutex_unlock(&pool->lock);
}

/* Memory of cuMemAlloc ends in stream order too. */
struct plain_free {
    struct sim_op op;
    uint64_t base, id;
};

static bool is_ending(struct sim_range *range) {
    return range->kind == SIM_RANGE_DEVICE && range->freeing;
}

static CUresult free_plain_now(struct sim_op *op) {
    const struct plain_free *this = (const struct plain_free *)op;
    struct sim_range range; /* it may have gone meanwhile */
    bool same = sim_ranges_find(&sim_memory, this->base, &range) && range.id == this->id;
    struct sim_range *removed = same ? sim_ranges_remove(&sim_memory, this->base, is_ending) : NULL;
    if (removed)
        sim_memory_dispose(removed);
    return CUDA_SUCCESS;
}

static const struct sim_op_class plain_free_class = {.run = free_plain_now, .even_after_error = true};

static bool begin_ending(struct sim_range *range, void *argument) {
    struct plain_free *op = argument;
    if (range->kind != SIM_RANGE_DEVICE || range->freeing || range->placed || range->base != op->base)
        return false;
    range->freeing = true;
    op->id = range->id;
    return true;
}

static CUresult free_plain(struct sim_stream *stream, uint64_t pointer) {
    struct plain_free *op = sim_op_new(sizeof *op, &plain_free_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->base = pointer;
    if (!sim_ranges_change(&sim_memory, pointer, begin_ending, op)) {
        sim_op_discard(&op->op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_submit_and_forget(stream, &op->op);
}

static CUresult free_in(struct sim_stream *stream, uint64_t pointer) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = pointer}};
    CUresult result;
    struct sim_range range;
    if (!pointer)
        return CUDA_SUCCESS;
    if (sim_capture_takes_params(stream, &params, &result))
        return result;
    bool found = sim_ranges_find(&sim_memory, pointer, &range) && range.base == pointer;
    if (found && range.free_it)
        return range.free_it(pointer);
    if (found && range.kind == SIM_RANGE_DEVICE)
        return free_plain(stream, pointer);
    struct sim_pool_free *op = sim_op_new(sizeof *op, &free_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->base = pointer;
    op->stream = stream;
    if (!sim_ranges_change(&sim_memory, pointer, begin_freeing, op)) {
        sim_op_discard(&op->op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    begin(op);
    return sim_submit_and_forget(stream, &op->op);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = free_in(stream, pointer);
    sim_release(stream);
    return result;
}
