/* cuCtxSynchronize_v2, which a capture in any stream of that context forbids. */
#include "capture.h"
#include "context.h"
#include "functions.h"
#include "guest.h"
#include "objects.h"

/* A context that is not the caller's is synchronised as if it were. */
CUresult gf_cuCtxSynchronize_v2(CUcontext ctx) {
    struct gf_context *context;
    uint64_t wire;
    CUresult error = gf_context_look_up(ctx, &context, &wire);
    if (error == CUDA_SUCCESS) {
        error = gf_context_usable(context);
    }
    if (error == CUDA_SUCCESS && gf_capture_any()) {
        error = gf_capture_context_of(wire, 0);
    }
    if (error != CUDA_SUCCESS) {
        return error;
    }
    uint32_t before = gf_thread.context_id;
    if (ctx != NULL) {
        gf_thread.context_id = gf_handle_slot(wire) + 1;
    }
    CUresult result = gf_cuCtxSynchronize();
    gf_thread.context_id = before;
    return result;
}
