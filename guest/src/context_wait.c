/* cuCtxSynchronize, which a capture in any stream of that context forbids. */
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "green.h"
#include "guest.h"
#include "objects.h"
#include "steps.h"
#include "window.h"

/* Until the one that calls are about has done what it was given. */
static CUresult await_all(void) {
    uint64_t through = gf_window_work();
    CUresult result = gf_call_struct(GF_OP_cuCtxSynchronize, NULL, 0, NULL, 0);
    if (result == CUDA_SUCCESS && gf_context_is_only_one()) {
        gf_window_synchronized(through);
    }
    return gf_window_waited(result);
}

CUresult gf_cuCtxSynchronize_send(void) {
    return gf_thread.green == 0 ? await_all() : gf_green_synchronize(gf_thread.green);
}

static CUresult look_up(CUcontext ctx, uint64_t *wire) {
    struct gf_context *context;
    CUresult error = gf_context_look_up(ctx, &context, wire);
    return error == CUDA_SUCCESS ? gf_context_usable(context) : error;
}

/* A context that is not the caller's is synchronised as if it were. */
static CUresult synchronize(uint64_t wire, uint64_t green) {
    if (green != 0) {
        return gf_green_synchronize(green);
    }
    const struct gf_lent before = gf_context_lend(wire);
    CUresult result = await_all();
    gf_context_return(before);
    return result;
}

CUresult gf_context_synchronize(CUcontext ctx) {
    uint64_t wire;
    CUresult error = look_up(ctx, &wire);
    return error == CUDA_SUCCESS ? synchronize(wire, 0) : error;
}

CUresult gf_cuCtxSynchronize_v2(CUcontext ctx) {
    uint64_t wire;
    CUresult error = look_up(ctx, &wire);
    if (error == CUDA_SUCCESS && gf_capture_any()) {
        error = gf_capture_context_of(wire, gf_green_of(ctx));
    }
    return error == CUDA_SUCCESS ? synchronize(wire, gf_green_of(ctx)) : error;
}
