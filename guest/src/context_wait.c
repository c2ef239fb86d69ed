/* cuCtxSynchronize_v2, which a capture in any stream of that context forbids. */
#include "capture.h"
#include "context.h"
#include "functions.h"
#include "guest.h"
#include "objects.h"

static CUresult look_up(CUcontext ctx, uint64_t *wire) {
    struct gf_context *context;
    CUresult error = gf_context_look_up(ctx, &context, wire);
    return error == CUDA_SUCCESS ? gf_context_usable(context) : error;
}

/* A context that is not the caller's is synchronised as if it were. */
static CUresult synchronize(uint64_t wire) {
    uint32_t before = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(wire) + 1;
    CUresult result = gf_cuCtxSynchronize();
    gf_thread.context_id = before;
    return result;
}

CUresult gf_context_synchronize(CUcontext ctx) {
    uint64_t wire;
    CUresult error = look_up(ctx, &wire);
    return error == CUDA_SUCCESS ? synchronize(wire) : error;
}

CUresult gf_cuCtxSynchronize_v2(CUcontext ctx) {
    uint64_t wire;
    CUresult error = look_up(ctx, &wire);
    if (error == CUDA_SUCCESS && gf_capture_any()) {
        error = gf_capture_context_of(wire, 0);
    }
    return error == CUDA_SUCCESS ? synchronize(wire) : error;
}
