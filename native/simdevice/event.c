#include "event.h"
#include "capture.h"
#include "ipc_event.h"
#include "stream.h"
#include "synchronized.h"
#include <stdlib.h>

struct sim_event {
    struct sim_object object;
    struct sim_context *context;
    unsigned flags;
    pthread_mutex_t lock;
    struct sim_op *recorded; /* the last record's place in its stream; NULL: never recorded */
    struct sim_capture_mark
        mark; /* if the last record was captured: its place there. Under the graphs' lock */
    struct sim_ipc_event *shared; /* its records, if processes may share it; else NULL */
};

static const struct sim_op_class marker = {.run = NULL};

static void destroy(void *pointer) {
    struct sim_event *event = pointer;
    if (event->recorded)
        sim_op_release(event->recorded);
    sim_capture_mark_drop(&event->mark);
    if (event->shared)
        sim_ipc_event_end(event->shared);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static CUresult acquire(CUevent handle, struct sim_event **out) {
    SIM_TRY(sim_enter());
    *out = sim_acquire(SIM_HANDLE(handle), SIM_EVENT);
    if (!*out)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_context_check((*out)->context);
    if (result != CUDA_SUCCESS)
        sim_release(*out);
    return result;
}

/* The recorded operation with a reference, or NULL. */
static struct sim_op *recorded(struct sim_event *event) {
    pthread_mutex_lock(&event->lock);
    struct sim_op *op = event->recorded;
    if (op)
        sim_op_retain(op);
    pthread_mutex_unlock(&event->lock);
    return op;
}

/* Takes `shared` over, whether it succeeds or not. */
static CUresult event_new(struct sim_context *context, unsigned flags, struct sim_ipc_event *shared,
                          CUevent *out) {
    struct sim_event *event = calloc(1, sizeof *event);
    if (!event) {
        if (shared)
            sim_ipc_event_end(shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->context = context;
    event->flags = flags;
    event->shared = shared;
    pthread_mutex_init(&event->lock, NULL);
    if (!sim_handle_open(event, SIM_EVENT, context, destroy)) {
        destroy(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = SIM_POINTER(CUevent, event);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags) {
    struct sim_context *context;
    struct sim_ipc_event *shared = NULL;
    SIM_TRY(sim_context_current(&context));
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    SIM_REQUIRE(out && (flags & ~known) == 0);
    if (flags & CU_EVENT_INTERPROCESS) {
        SIM_REQUIRE(flags & CU_EVENT_DISABLE_TIMING);
        SIM_TRY(sim_ipc_event_new(context->device, &shared));
    }
    return event_new(context, flags, shared, out);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle) {
    struct sim_event *event;
    SIM_REQUIRE(out);
    *out = (CUipcEventHandle){0}; /* Warp takes it for the sign that it was refused */
    SIM_TRY(acquire(handle, &event));
    CUresult result =
        event->shared && sim_ipc_event_handle(event->shared, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    sim_release(event);
    return result;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
    struct sim_context *context;
    struct sim_ipc_event *shared;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out);
    SIM_TRY(sim_ipc_event_open(&handle, &shared));
    return event_new(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared, out);
}

CUresult cuEventDestroy_v2(CUevent handle) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    sim_release(event);
    event = sim_handle_close(SIM_HANDLE(handle), SIM_EVENT);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_release(event);
    return CUDA_SUCCESS;
}

static CUresult record(struct sim_event *event, struct sim_stream *stream) {
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_op *op = event->shared ? sim_ipc_event_record(event->shared) : sim_op_new(sizeof *op, &marker);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&event->lock);
    struct sim_op *before = event->recorded;
    event->recorded = op;
    sim_submit(stream, op, NULL);
    pthread_mutex_unlock(&event->lock);
    if (before)
        sim_op_release(before);
    return CUDA_SUCCESS;
}

static CUresult wait(struct sim_event *event, struct sim_stream *stream) {
    CUresult result = CUDA_SUCCESS;
    if (event->shared && !sim_ipc_event_done(event->shared)) {
        struct sim_op *op = sim_ipc_event_wait(event->shared);
        if (!op)
            return CUDA_ERROR_OUT_OF_MEMORY;
        sim_submit(stream, op, NULL);
        sim_op_release(op);
        return CUDA_SUCCESS;
    }
    struct sim_op *awaited = recorded(event);
    if (awaited && !sim_op_done(awaited)) {
        struct sim_op *op = sim_op_new(sizeof *op, &marker);
        if (op) {
            sim_submit(stream, op, awaited);
            sim_op_release(op);
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (awaited)
        sim_op_release(awaited);
    return result;
}

CUresult sim_event_context(CUevent handle, struct sim_context **context) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    *context = event->context;
    sim_release(event);
    return CUDA_SUCCESS;
}

CUresult sim_event_uncaptured(CUevent handle) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    bool captured = event->mark.id != 0;
    if (captured)
        sim_capture_asked(&event->mark);
    sim_release(event);
    return captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sim_event_of_launch(CUevent handle, const struct sim_context *context) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    bool may = (event->flags & CU_EVENT_DISABLE_TIMING) && !event->shared;
    CUresult result = event->context != context ? CUDA_ERROR_INVALID_HANDLE
                      : may                     ? CUDA_SUCCESS
                                                : CUDA_ERROR_INVALID_VALUE;
    sim_release(event);
    return result;
}

void sim_event_set_edge(CUevent handle, CUgraphEdgeData edge) {
    struct sim_event *event;
    if (acquire(handle, &event) != CUDA_SUCCESS)
        return;
    sim_capture_set_edge(&event->mark, edge);
    sim_release(event);
}

CUresult sim_event_record_in(CUevent handle, struct sim_stream *stream) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    sim_capture_mark_clear(&event->mark);
    CUresult result = record(event, stream);
    sim_release(event);
    return result;
}

CUresult sim_event_wait_in(CUevent handle, struct sim_stream *stream) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    CUresult result = wait(event, stream);
    sim_release(event);
    return result;
}

/* With the flag for it a captured stream gets a node, which does at each launch what it says. */
static CUresult record_or_capture(struct sim_event *event, struct sim_stream *stream, unsigned flags) {
    CUresult result;
    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                    .eventRecord = {.event = SIM_POINTER(CUevent, event)}};
        return sim_capture_takes_params(stream, &params, &result) ? result : CUDA_ERROR_ILLEGAL_STATE;
    }
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_capture_record(stream, &event->mark, &result))
        return result;
    sim_capture_mark_clear(&event->mark);
    return record(event, stream);
}

static CUresult wait_or_capture(struct sim_event *event, struct sim_stream *stream, unsigned flags) {
    CUresult result;
    if (flags & CU_EVENT_WAIT_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                    .eventWait = {.event = SIM_POINTER(CUevent, event)}};
        return sim_capture_takes_params(stream, &params, &result) ? result : CUDA_ERROR_INVALID_VALUE;
    }
    return sim_capture_wait(stream, &event->mark, &result) ? result : wait(event, stream);
}

typedef CUresult use_in_stream(struct sim_event *event, struct sim_stream *stream, unsigned flags);

static CUresult use(CUevent handle, CUstream stream_handle, unsigned flags, use_in_stream *action) {
    struct sim_event *event;
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(stream_handle, &stream));
    CUresult result = acquire(handle, &event);
    if (result == CUDA_SUCCESS) {
        result = action(event, stream, flags);
        sim_release(event);
    }
    sim_release(stream);
    return result;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    SIM_REQUIRE((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) == 0);
    return use(event, stream, flags, record_or_capture);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    SIM_REQUIRE((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) == 0);
    return use(event, stream, flags, wait_or_capture);
}

/* Whether the host may ask about the event, or wait for it. */
static CUresult check_askable(struct sim_event *event) {
    if (event->mark.id) {
        sim_capture_asked(&event->mark);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return sim_capture_check_unsafe();
}

CUresult cuEventQuery(CUevent handle) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    CUresult result = check_askable(event);
    struct sim_op *op = recorded(event);
    bool done = event->shared ? sim_ipc_event_done(event->shared) : !op || sim_op_done(op);
    if (result == CUDA_SUCCESS)
        result = done ? sim_context_error(event->context) : CUDA_ERROR_NOT_READY;
    if (op)
        sim_op_release(op);
    sim_release(event);
    return result;
}

CUresult cuEventSynchronize(CUevent handle) {
    struct sim_event *event;
    SIM_TRY(acquire(handle, &event));
    CUresult result = check_askable(event);
    struct sim_op *op = recorded(event);
    if (event->shared && result == CUDA_SUCCESS)
        sim_ipc_event_await(event->shared, event->context);
    if (op) {
        if (result == CUDA_SUCCESS && !event->shared)
            sim_op_wait(op);
        sim_op_release(op);
    }
    if (result == CUDA_SUCCESS) {
        result = sim_context_error(event->context);
        sim_synchronized();
    }
    sim_release(event);
    return result;
}

static CUresult finished_at(struct sim_event *event, uint64_t *ns) {
    if (event->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->mark.id)
        return CUDA_ERROR_CAPTURED_EVENT;
    struct sim_op *op = recorded(event);
    if (!op)
        return CUDA_ERROR_INVALID_HANDLE;
    bool done = sim_op_done(op);
    if (done)
        *ns = op->finished_ns;
    sim_op_release(op);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle) {
    struct sim_event *start, *end;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_HANDLE; /* as NVIDIA's driver calls it */
    SIM_TRY(acquire(start_handle, &start));
    CUresult result = acquire(end_handle, &end);
    if (result == CUDA_SUCCESS) {
        uint64_t from = 0, to = 0;
        CUresult first = finished_at(start, &from), second = finished_at(end, &to);
        /* an event that cannot be timed at all matters more than one that is not ready */
        result = first == CUDA_ERROR_INVALID_HANDLE || second == CUDA_SUCCESS ? first : second;
        if (start->context->device != end->context->device)
            result = CUDA_ERROR_INVALID_HANDLE; /* they keep no time in common */
        if (result == CUDA_SUCCESS)
            *milliseconds = (float)((double)(int64_t)(to - from) * 1e-6);
        sim_release(end);
    }
    sim_release(start);
    return result;
}
