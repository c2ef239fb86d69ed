/* Events that are recorded in a capture, and streams that wait for them. */
#include <stdlib.h>

#include "capture_state.h"
#include "channel.h"
#include "freed.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "ipc.h"
#include "objects.h"
#include "steps.h"

void gf_event_ended(struct gf_object *object) {
    struct gf_event *event = (struct gf_event *)object;
    if (event->mark != NULL) {
        atomic_fetch_sub(&gf_capture_count, 1);
    }
    free(event->mark);
    event->mark = NULL;
}

void gf_capture_release(struct gf_event *event) {
    if (event->mark != NULL) {
        gf_graphs_lock();
        gf_event_ended(&event->object);
        gf_graphs_unlock();
    }
}

static struct gf_mark *mark_of(const struct gf_captured *captured) {
    const struct gf_places *places = &captured->places;
    struct gf_mark *mark = malloc(sizeof *mark + places->count * sizeof *mark->places);
    if (mark != NULL) {
        mark->id = captured->capture->id;
        mark->count = places->count;
        for (unsigned i = 0; i < places->count; i++) {
            mark->places[i].node = places->edges[i].from->handle;
            mark->places[i].data = places->edges[i].data;
        }
    }
    return mark;
}

void gf_capture_set_edge(CUevent handle, CUgraphEdgeData edge) {
    const struct gf_event *event = gf_event_find(handle);
    gf_graphs_lock();
    if (event != NULL && event->mark != NULL && event->mark->count == 1) {
        event->mark->places[0].data = edge;
    }
    gf_graphs_unlock();
}

bool gf_capture_takes_record(CUevent handle, CUstream stream_handle, unsigned flags, CUresult *result) {
    if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
        return gf_capture_takes(stream_handle, GF_FORM_RECORD, &handle, result);
    }
    struct gf_event *event = gf_event_find(handle);
    struct gf_stream *stream = gf_capture_stream_of(stream_handle);
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    if (captured == NULL) {
        *result = gf_capture_implicit(stream_handle, true);
    } else if (captured->capture->invalid) {
        *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else {
        struct gf_mark *mark = mark_of(captured);
        atomic_fetch_add(&gf_capture_count, mark != NULL ? 1 : 0);
        gf_event_ended(&event->object);
        event->mark = mark;
        *result = mark == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    gf_graphs_unlock();
    return captured != NULL || *result != CUDA_SUCCESS;
}

/* Adds what a mark stands for to a stream's places; nodes that are gone need no waiting. */
static CUresult merge(struct gf_captured *captured, const struct gf_mark *mark) {
    for (unsigned i = 0; i < mark->count; i++) {
        struct gf_graph_node *object = gf_graph_node_find((CUgraphNode)mark->places[i].node);
        if (object != NULL && object->node->model == captured->capture->model &&
            !gf_places_add(&captured->places, object->node, &mark->places[i].data)) {
            return gf_capture_invalidate(captured->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    return CUDA_SUCCESS;
}

static CUresult wait_in(CUstream handle, struct gf_stream *stream, const struct gf_mark *mark) {
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    struct gf_capture *other = gf_capture_of_mark(mark),
                      *capture = captured != NULL ? captured->capture : other;
    if (capture == NULL || other == NULL) {
        return capture == NULL ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                               : gf_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (capture->invalid || other->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (capture != other) {
        gf_capture_invalidate(other, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return gf_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (gf_capture_is_legacy(handle)) {
        return gf_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    captured = captured == NULL ? gf_capture_join(capture, stream) : captured;
    return captured == NULL ? CUDA_ERROR_OUT_OF_MEMORY : merge(captured, mark);
}

bool gf_capture_takes_wait(CUstream handle, CUevent event_handle, unsigned flags, CUresult *result) {
    if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
        return gf_capture_takes(handle, GF_FORM_WAIT, &event_handle, result);
    }
    struct gf_event *event = gf_event_find(event_handle);
    struct gf_stream *stream = gf_capture_stream_of(handle);
    gf_graphs_lock();
    bool taken = (stream != NULL && stream->captured != NULL) || event->mark != NULL;
    *result = taken ? wait_in(handle, stream, event->mark) : gf_capture_implicit(handle, true);
    gf_graphs_unlock();
    return taken || *result != CUDA_SUCCESS;
}

CUresult gf_event_send(struct gf_event *event, uint16_t op, void *request, size_t size) {
    return event->flags & CU_EVENT_INTERPROCESS ? gf_call_struct(op, request, size, NULL, 0)
                                                : gf_send(op, &(struct iovec){request, size}, 1);
}

static CUresult record(struct gf_event *event, struct gf_req_cuEventRecordWithFlags *request) {
    CUresult result = gf_event_await_copies(event, request->hStream);
    gf_capture_release(event);
    gf_event_marked(event, request->hStream);
    return result == CUDA_SUCCESS
               ? gf_event_send(event, GF_OP_cuEventRecordWithFlags, request, sizeof *request)
               : result;
}

CUresult gf_cuEventRecordWithFlags_send(CUevent hEvent, CUstream hStream, unsigned flags) {
    struct gf_req_cuEventRecordWithFlags request = {.hEvent = (uint64_t)hEvent};
    struct gf_event *event = gf_event_find(hEvent);
    CUresult result = gf_wire_stream(hStream, &request.hStream);
    if (result != CUDA_SUCCESS || event == NULL ||
        (gf_capture_any() && gf_capture_takes_record(hEvent, hStream, flags, &result))) {
        return event == NULL ? CUDA_ERROR_INVALID_HANDLE : result;
    }
    if (flags != CU_EVENT_RECORD_DEFAULT) {
        return CUDA_ERROR_ILLEGAL_STATE; /* there is no capture */
    }
    uint32_t before = gf_stream_enter(request.hStream);
    result = record(event, &request);
    gf_thread.context_id = before;
    return result;
}

CUresult gf_cuStreamWaitEvent_send(CUstream hStream, CUevent hEvent, unsigned Flags) {
    struct gf_req_cuStreamWaitEvent request = {.hEvent = (uint64_t)hEvent};
    struct gf_event *event = gf_event_find(hEvent);
    CUresult result = gf_wire_stream(hStream, &request.hStream);
    if (result != CUDA_SUCCESS || event == NULL ||
        ((gf_capture_any() || event->mark != NULL) &&
         gf_capture_takes_wait(hStream, hEvent, Flags, &result))) {
        return event == NULL ? CUDA_ERROR_INVALID_HANDLE : result;
    }
    if (Flags != CU_EVENT_WAIT_DEFAULT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t before = gf_stream_enter(request.hStream);
    result = gf_event_send(event, GF_OP_cuStreamWaitEvent, &request, sizeof request);
    gf_thread.context_id = before;
    return result;
}
