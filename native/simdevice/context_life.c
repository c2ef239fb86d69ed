/* How a context begins and ends. What it is meanwhile is in context.c, the calls about the current one are in
 * current.c, those about the primary one in primary.c. */
#include "capture.h"
#include "context.h"
#include "device_limits.h"
#include "driver_interop/interop.h"
#include "driver_interop/stream_settings.h"
#include "execute.h"
#include "graph_exec.h"
#include "green.h"
#include "memory.h"
#include "module.h"
#include "stream.h"
#include "texture.h"
#include "thread.h"
#include <stdlib.h>

static _Atomic uint64_t next_id = 1;

static void keep(void *context) {
    (void)context; /* never freed, see context.h */
}

static void set_default_limits(struct sim_context *context) {
    pthread_mutex_lock(&context->lock);
    context->limits[CU_LIMIT_STACK_SIZE] = SIM_STACK_LIMIT;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = SIM_HEAP_LIMIT;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
    atomic_store(&context->used, 0);
    pthread_mutex_unlock(&context->lock);
}

static CUresult context_new(struct sim_device *device, unsigned flags, struct sim_context **out) {
    struct sim_context *context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->flags = flags;
    context->api_version = 3020;
    context->id = atomic_fetch_add(&next_id, 1);
    pthread_mutex_init(&context->lock, NULL);
    set_default_limits(context);
    if (!sim_handle_open(context, SIM_CONTEXT, NULL, keep)) {
        free(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->legacy = sim_stream_new(context, SIM_STREAM_LEGACY, CU_STREAM_DEFAULT, SIM_LEAST_PRIORITY);
    if (!context->legacy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_context_set_active(context, true);
    sim_context_keep(context);
    *out = context;
    return CUDA_SUCCESS;
}

CUresult sim_context_create_primary(struct sim_device *device) {
    SIM_TRY(context_new(device, CU_CTX_SCHED_AUTO, &device->primary));
    device->primary->is_primary = true;
    sim_context_set_active(device->primary, false);
    return CUDA_SUCCESS;
}

void sim_context_tear_down(struct sim_context *context) {
    gf_context_storage_drop(SIM_POINTER(CUcontext, context));
    sim_context_set_active(context, false);
    atomic_fetch_add(&context->ends, 1);
    sim_context_drain(context, NULL);
    sim_greens_forget_context(context);
    sim_capture_forget_context(context);
    sim_execs_forget_context(context);
    sim_handle_close_all(SIM_EVENT, context);
    sim_handle_close_all(SIM_STREAM, context);
    sim_handle_close_all(SIM_LINK, context);
    sim_libraries_forget_context(context);
    sim_handle_close_all(SIM_FUNCTION, context);
    sim_handle_close_all(SIM_MODULE, context);
    sim_textures_forget_context(context);
    sim_handle_close_all(SIM_ARRAY, context);
    sim_handle_close_all(SIM_MIPMAP, context);
    sim_memory_free_context(context);
    gf_stream_settings_forget(&context->legacy->settings);
    sim_peers_forget(context);
    sim_contexts_recover(context->device);
    set_default_limits(context);
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    if (!sim_context_any_active()) /* whoever comes next finds nothing of what kernels left */
        sim_grids_forget();
}

static CUresult check(const CUcontext *out, unsigned flags, CUdevice ordinal) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && sim_context_flags_valid(flags));
    return sim_device_at(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice ordinal) {
    SIM_TRY(check(out, flags, ordinal));
    struct sim_device *device = sim_device_at(ordinal);
    struct sim_context *context;
    SIM_TRY((CUresult)atomic_load(&device->error));
    SIM_TRY(context_new(device, flags, &context));
    if (!sim_thread_push(context))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = SIM_POINTER(CUcontext, context);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    return create(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *parameters, int count, unsigned int flags,
                        CUdevice device) {
    (void)parameters;
    SIM_TRY(check(context, flags, device));
    if (count != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(context, flags, device);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *parameter, CUexecAffinityType type) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(parameter && (unsigned)type < CU_EXEC_AFFINITY_TYPE_MAX);
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                        CUdevice device) {
    if (parameters && parameters->numExecAffinityParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (parameters && parameters->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(handle);
    struct sim_context *context = sim_context_of(handle);
    if (!context || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_thread_top() == context)
        sim_thread_pop();
    if (!sim_handle_close(SIM_HANDLE(handle), SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_context_tear_down(context);
    sim_context_drop(context);
    sim_release(context);
    return CUDA_SUCCESS;
}
