/* The context that is current on the calling thread. */
#include "context.h"
#include "gpuferry/results.h"

_Thread_local struct gf_thread gf_thread;

uint64_t gf_context_current_handle(void) {
    return gf_thread.depth == 0 ? 0 : gf_thread.context;
}

uint64_t gf_context_shown(void) {
    return gf_thread.depth == 0 ? 0 : gf_thread.stack[gf_thread.depth - 1];
}

struct gf_context *gf_context_current(void) {
    return gf_context_find((CUcontext)gf_context_current_handle());
}

CUdevice gf_context_device(uint64_t handle) {
    const struct gf_context *context =
        gf_session.device_count > 1 ? gf_context_find((CUcontext)handle) : NULL;
    return context == NULL ? 0 : context->device;
}

int gf_device_number(void) {
    const struct gf_context *context = gf_session.device_count > 1 ? gf_context_current() : NULL;
    return context == NULL ? 0 : context->device;
}

const struct gf_device *gf_device_here(void) {
    return &gf_session.devices[gf_device_number()];
}

uint32_t gf_context_wire_id(void) {
    return gf_thread.context_id;
}

CUresult gf_context_usable(const struct gf_context *context) {
    if (!atomic_load_explicit(&context->active, memory_order_acquire)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return (CUresult)atomic_load_explicit(&context->sticky, memory_order_relaxed);
}

CUresult gf_context_check(void) {
    if (gf_thread.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct gf_context *context = gf_context_current();
    bool gone = context == NULL ||
                (gf_thread.green != 0 && gf_green_context_find((CUgreenCtx)gf_thread.green) == NULL);
    return gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : gf_context_usable(context);
}

void gf_session_sticky(CUresult error) {
    CUcontext of = (CUcontext)(gf_thread.asked != 0 ? gf_thread.asked : gf_context_current_handle());
    struct gf_context *context = gf_destroys_context(error) ? gf_context_find(of) : NULL;
    if (context != NULL) {
        atomic_store(&context->sticky, (int)error);
    }
}
