/* What is illegal while something is captured. */
#include "calls.h"
#include "capture_state.h"
#include "context.h"
#include "objects.h"

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult gf_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult gf_capture_implicit(CUstream handle, bool invalidates) {
    CUresult result = CUDA_SUCCESS;
    for (struct gf_capture *c = gf_capture_is_legacy(handle) ? gf_captures : NULL; c != NULL; c = c->next) {
        for (struct gf_captured *s = c->streams; s != NULL; s = s->next) {
            if ((s->stream->flags & CU_STREAM_NON_BLOCKING) == 0 &&
                s->stream->object.owner == gf_context_current_handle()) {
                result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                c->invalid |= invalidates;
            }
        }
    }
    return result;
}

static CUresult check_unsafe(void) {
    CUresult result = CUDA_SUCCESS;
    for (struct gf_capture *c = thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED ? NULL : gf_captures; c != NULL;
         c = c->next) {
        bool own = c->thread == gf_capture_thread();
        bool everywhere =
            c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && (own || everywhere)) {
            result = gf_capture_invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

CUresult gf_capture_unsafe(void) {
    gf_graphs_lock();
    CUresult result = check_unsafe();
    gf_graphs_unlock();
    return result;
}

CUresult gf_capture_copy(CUstream handle) {
    gf_graphs_lock();
    CUresult result = gf_capture_implicit(handle, true);
    result = result == CUDA_SUCCESS ? check_unsafe() : result;
    gf_graphs_unlock();
    return result;
}

static CUresult check_stream(CUstream handle) {
    struct gf_stream *stream = gf_capture_stream_of(handle);
    return stream != NULL && stream->captured != NULL
               ? gf_capture_invalidate(stream->captured->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
               : gf_capture_implicit(handle, true);
}

CUresult gf_capture_stream(CUstream handle) {
    if (gf_capture_is_unknown(handle, gf_capture_stream_of(handle))) {
        return CUDA_SUCCESS; /* the call says so, and no capture ends by it */
    }
    gf_graphs_lock();
    CUresult result = check_stream(handle);
    result = result == CUDA_SUCCESS ? check_unsafe() : result;
    gf_graphs_unlock();
    return result;
}

CUresult gf_capture_launch(CUstream handle) {
    gf_graphs_lock();
    CUresult result = check_stream(handle);
    gf_graphs_unlock();
    return result;
}

CUresult gf_capture_context(void) {
    return gf_capture_context_of(gf_context_current_handle(), gf_thread.green);
}

CUresult gf_capture_context_of(uint64_t context, uint64_t green) {
    CUresult result = CUDA_SUCCESS;
    gf_graphs_lock();
    for (struct gf_capture *c = gf_captures; c != NULL; c = c->next) {
        for (struct gf_captured *s = c->streams; s != NULL; s = s->next) {
            if (s->stream->object.owner == context && (green == 0 || s->stream->green == green)) {
                result = gf_capture_invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
        }
    }
    result = result == CUDA_SUCCESS ? check_unsafe() : result;
    gf_graphs_unlock();
    return result;
}

CUresult gf_capture_event(CUevent handle) {
    struct gf_event *event = gf_event_find(handle);
    if (event == NULL) {
        return CUDA_SUCCESS;
    }
    gf_graphs_lock();
    struct gf_capture *capture = gf_capture_of_mark(event->mark);
    if (capture != NULL) {
        capture->invalid = true;
    }
    CUresult result = event->mark != NULL ? CUDA_ERROR_CAPTURED_EVENT : check_unsafe();
    gf_graphs_unlock();
    return result;
}
