/* cuCtxAttach and cuCtxDetach, which count who uses a context. */
#include "functions.h"
#include "guest.h"
#include "objects.h"

CUresult gf_cuCtxAttach(CUcontext *pctx, unsigned flags) {
    CUcontext handle = NULL;
    CUdevice device;
    if (pctx == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_cuCtxGetCurrent(&handle);
    struct gf_context *context = gf_context_find(handle);
    if (result != CUDA_SUCCESS || context == NULL) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
    }
    if (context->primary) {
        result = gf_cuCtxGetDevice(&device);
        return result == CUDA_SUCCESS ? gf_cuDevicePrimaryCtxRetain(pctx, device) : result;
    }
    atomic_fetch_add(&context->references, 1); /* beside the one that made it */
    *pctx = handle;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxDetach(CUcontext ctx) {
    struct gf_context *context = gf_context_find(ctx);
    if (context == NULL || context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint32_t before = atomic_load(&context->references);
    while (before > 0 && !atomic_compare_exchange_weak(&context->references, &before, before - 1)) {
    }
    return before > 0 ? CUDA_SUCCESS : gf_cuCtxDestroy_v2(ctx);
}
