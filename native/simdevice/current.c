/* The stack of current contexts, and questions and settings of the current one. */
#include "capture.h"
#include "device_limits.h"
#include "execute.h"
#include "green.h"
#include "synchronized.h"
#include "thread.h"

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(handle);
    struct sim_context *context = sim_context_named(handle);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_thread_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPopCurrent_v2(CUcontext *out) {
    SIM_TRY(sim_enter());
    struct sim_context *context = sim_thread_pop();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out)
        *out = SIM_POINTER(CUcontext, context);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
    SIM_TRY(sim_enter());
    struct sim_context *context = handle ? sim_context_named(handle) : NULL;
    if (handle && !context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_thread_set_current(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxGetCurrent(CUcontext *out) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out);
    struct sim_context *context = sim_thread_top();
    *out = context ? SIM_POINTER(CUcontext, context) : NULL;
    return CUDA_SUCCESS;
}

/* NULL is the current context. A sticky error is no obstacle to asking about a context. */
static CUresult find(CUcontext handle, struct sim_context **context) {
    SIM_TRY(sim_enter());
    *context = handle ? sim_context_of(handle) : sim_thread_current();
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return atomic_load(&(*context)->active) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(device);
    /* of an inactive primary context, too: which device it belongs to does not change */
    struct sim_context *context = handle ? sim_context_of(handle) : sim_thread_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->is_primary && !atomic_load(&context->active))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    struct sim_context *context = sim_thread_current();
    if (!context || !context->is_primary || atomic_load(&context->active)) /* one that was reset has flags */
        SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(flags);
    *flags = atomic_load(&context->flags);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(find(NULL, &context));
    SIM_REQUIRE(sim_context_flags_valid(flags));
    atomic_store(&context->flags, flags);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id) {
    struct sim_context *context;
    CUresult result = find(handle, &context);
    if (result == CUDA_ERROR_INVALID_CONTEXT && handle)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    SIM_TRY(result);
    SIM_REQUIRE(id);
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
    struct sim_context *context;
    SIM_TRY(find(handle, &context));
    SIM_REQUIRE(version);
    *version = context->api_version;
    return CUDA_SUCCESS;
}

static CUresult synchronize(struct sim_context *context, const struct sim_green *green) {
    SIM_TRY(sim_context_check(context));
    SIM_TRY(sim_capture_check_context(context, green));
    sim_context_drain(context, green);
    sim_synchronized();
    return sim_context_error(context);
}

CUresult cuCtxSynchronize(void) {
    struct sim_context *context;
    SIM_TRY(find(NULL, &context));
    return synchronize(context, sim_thread_green());
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
    struct sim_context *context;
    SIM_TRY(find(handle, &context));
    return synchronize(context, handle ? sim_context_named(handle)->green : sim_thread_green());
}

static bool limit_supported(CUlimit limit) {
    return (unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

/* The most that can be had, as on a GPU: of local memory 512 KiB a thread, of heap and buffers what the
 * device has. */
static size_t most(const struct sim_context *context, CUlimit limit) {
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        return SIM_STACK_LIMIT_MAX;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        return 128;
    default:
        return context->device->memory;
    }
}

/* Whether a kernel has used what the limit is about, or one that is on its way does. */
static bool settled(struct sim_context *context, CUlimit limit) {
    uint32_t what = limit == CU_LIMIT_PRINTF_FIFO_SIZE   ? SIM_USED_OUTPUT
                    : limit == CU_LIMIT_MALLOC_HEAP_SIZE ? SIM_USED_HEAP
                                                         : 0;
    if (what)
        sim_context_drain(context, NULL);
    return atomic_load(&context->used) & what;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE((unsigned)limit < CU_LIMIT_MAX);
    if (!limit_supported(limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    SIM_REQUIRE(value <= most(context, limit) && !settled(context, limit));
    pthread_mutex_lock(&context->lock);
    context->limits[limit] = value;
    pthread_mutex_unlock(&context->lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(value && (unsigned)limit < CU_LIMIT_MAX);
    if (!limit_supported(limit) && limit != CU_LIMIT_CIG_ENABLED) /* which can only be asked for: 0 */
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    pthread_mutex_lock(&context->lock);
    *value = context->limits[limit];
    pthread_mutex_unlock(&context->lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(config);
    pthread_mutex_lock(&context->lock);
    *config = context->cache_config;
    pthread_mutex_unlock(&context->lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE((unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL);
    pthread_mutex_lock(&context->lock);
    context->cache_config = config;
    pthread_mutex_unlock(&context->lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(config);
    *config =
        CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE; /* whatever was set: it is a device of one bank size */
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE((unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    if (least)
        *least = SIM_LEAST_PRIORITY;
    if (greatest)
        *greatest = SIM_GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
    struct sim_context *context;
    return sim_context_current(&context);
}
