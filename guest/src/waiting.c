/* What a wait that is over tells: which records of an event are complete, which stream is idle. */
#include "waiting.h"

#include "channel.h"
#include "context.h"
#include "freed.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "graph.h"
#include "objects.h"
#include "steps.h"
#include "stream.h"
#include "window.h"

/* Asks about an object of this context, whose failure it is that this may find. */
static CUresult ask_of(uint64_t context, uint16_t op, const void *request, size_t size) {
    uint32_t before = gf_thread.context_id;
    if (context != 0) {
        gf_thread.context_id = gf_handle_slot(context) + 1;
    }
    CUresult result = gf_call_struct(op, request, size, NULL, 0);
    gf_thread.context_id = before;
    return result;
}

/* A question about what a free has waited for in CUDA becomes a wait for it. */
static CUresult ask_stream(uint16_t op, CUstream handle) {
    struct gf_req_cuStreamQuery request;
    struct gf_stream *stream;
    CUresult result = gf_stream_look_up(handle, &stream, &request.hStream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    op = gf_freed_covers(stream) ? GF_OP_cuStreamSynchronize : op;
    return ask_of(stream == NULL ? 0 : stream->object.owner, op, &request, sizeof request);
}

static _Atomic uint64_t *idle_at(CUstream handle) {
    struct gf_stream *stream;
    uint64_t wire;
    if (gf_stream_look_up(handle, &stream, &wire) != CUDA_SUCCESS) {
        return NULL;
    }
    struct gf_context *context = stream == NULL ? gf_context_current() : NULL;
    return stream != NULL ? &stream->idle_at : context != NULL ? &context->idle_at : NULL;
}

void gf_stream_waited(CUstream handle, uint64_t before, uint64_t requests) {
    _Atomic uint64_t *at = idle_at(handle);
    if (at != NULL && gf_channel_frames() == before + requests) {
        atomic_store(at, before + requests);
    }
}

/* Nothing was sent since the stream had no work: so it has none. */
CUresult gf_cuStreamSynchronize_send(CUstream hStream) {
    const _Atomic uint64_t *at = idle_at(hStream);
    uint64_t before = gf_channel_frames();
    bool idle = at != NULL && atomic_load(at) == before;
    CUresult result = idle ? CUDA_SUCCESS : ask_stream(GF_OP_cuStreamSynchronize, hStream);
    if (result == CUDA_SUCCESS) {
        gf_stream_waited(hStream, before, 1);
    }
    return gf_window_waited(result);
}

CUresult gf_cuStreamQuery_send(CUstream hStream) {
    return ask_stream(GF_OP_cuStreamQuery, hStream);
}

/* As many records as there were before it was asked. */
static CUresult ask(uint16_t op, CUevent handle, const void *request, size_t size) {
    struct gf_event *event = gf_event_find(handle);
    uint64_t records = event == NULL ? 0 : atomic_load(&event->records);
    op = event != NULL && gf_freed_covers_event(event) ? GF_OP_cuEventSynchronize : op;
    CUresult result = ask_of(event == NULL ? 0 : event->object.owner, op, request, size);
    if (result == CUDA_SUCCESS && event != NULL) {
        atomic_store(&event->complete, records);
    }
    return result;
}

CUresult gf_cuEventQuery_send(CUevent hEvent) {
    struct gf_req_cuEventQuery request = {.hEvent = (uint64_t)hEvent};
    return ask(GF_OP_cuEventQuery, hEvent, &request, sizeof request);
}

CUresult gf_cuEventSynchronize_send(CUevent hEvent) {
    struct gf_req_cuEventSynchronize request = {.hEvent = (uint64_t)hEvent};
    return gf_window_waited(ask(GF_OP_cuEventSynchronize, hEvent, &request, sizeof request));
}

/* The time between events that a free has waited for is known. */
static void await_freed(CUevent handle) {
    const struct gf_event *event = gf_event_find(handle);
    if (event != NULL && gf_freed_covers_event(event) &&
        atomic_load(&event->complete) < atomic_load(&event->records)) {
        gf_cuEventSynchronize_send(handle);
    }
}

/* Of a record that became a place in a graph no time is known. That an event never has one comes first. */
static bool is_captured(const struct gf_event *event, const struct gf_event *other) {
    if (event == NULL || other == NULL || ((event->flags | other->flags) & CU_EVENT_DISABLE_TIMING) != 0 ||
        !event->recorded || !other->recorded) {
        return false;
    }
    gf_graphs_lock();
    bool captured = event->mark != NULL || other->mark != NULL;
    gf_graphs_unlock();
    return captured;
}

CUresult gf_cuEventElapsedTime_v2_check(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    if (pMilliseconds == NULL) {
        return CUDA_ERROR_INVALID_HANDLE; /* as the driver says, whatever its manual does */
    }
    if (is_captured(gf_event_find(hStart), gf_event_find(hEnd))) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    await_freed(hStart);
    await_freed(hEnd);
    return CUDA_SUCCESS;
}
