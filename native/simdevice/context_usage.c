/* cuCtxAttach and cuCtxDetach, which count who uses a context. */
#include "context.h"

CUresult cuCtxAttach(CUcontext *handle, unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(handle && flags == 0);
    SIM_TRY(sim_context_current(&context));
    if (context->is_primary)
        return cuDevicePrimaryCtxRetain(handle, context->device->ordinal);
    pthread_mutex_lock(&context->lock);
    context->retained++; /* beside the one that made it */
    pthread_mutex_unlock(&context->lock);
    *handle = SIM_POINTER(CUcontext, context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
    SIM_TRY(sim_enter());
    struct sim_context *context = sim_context_of(handle);
    if (!context || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&context->lock);
    bool used = context->retained > 0;
    context->retained -= used;
    pthread_mutex_unlock(&context->lock);
    return used ? CUDA_SUCCESS : cuCtxDestroy_v2(handle);
}
