#include "needs.h"
#include "capture.h"
#include "stream.h"

CUresult sim_may(enum sim_needs needs) {
    struct sim_context *context;
    switch (needs) {
    case SIM_NEEDS_NONE:
        break;
    case SIM_NEEDS_DRIVER:
    case SIM_NEEDS_OWNER:
        return sim_enter();
    case SIM_NEEDS_CONTEXT:
        return sim_context_current(&context);
    }
    return CUDA_SUCCESS;
}

CUresult sim_may_capture_unsafe(void) {
    return sim_capture_any() ? sim_capture_check_unsafe() : CUDA_SUCCESS;
}

static CUresult may(CUstream handle, CUresult (*check)(struct sim_stream *stream)) {
    struct sim_stream *stream;
    if (!sim_capture_any() || sim_stream_acquire(handle, &stream) != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* a stream that is none is told by the call itself */
    CUresult result = check(stream);
    sim_release(stream);
    return result == CUDA_SUCCESS ? sim_capture_check_unsafe() : result;
}

static CUresult check_copy(struct sim_stream *stream) {
    return stream->type == SIM_STREAM_LEGACY ? sim_capture_check_stream(stream) : CUDA_SUCCESS;
}

CUresult sim_may_capture_copy(CUstream stream) {
    return may(stream, check_copy);
}

CUresult sim_may_capture_stream(CUstream stream) {
    return may(stream, sim_capture_check_stream);
}
