#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "channel.h"
#include "context.h"
#include "freed.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "ipc.h"
#include "launch.h"
#include "objects.h"
#include "steps.h"
#include "stream.h"

/* Nodes behind which the next one comes. */
struct places {
    struct gf_edge *edges;
    unsigned count, room;
};

struct gf_capture {
    uint64_t id;
    struct gf_model *model; /* NULL: it has ended, and the capture is invalid */
    bool invalid;
    CUstreamCaptureMode mode;
    uint64_t thread;
    struct gf_captured *origin, *streams;
    struct places left; /* of streams that were destroyed: it is to be joined all the same */
    struct gf_capture *next;
};

/* A stream's part in a capture. */
struct gf_captured {
    struct gf_capture *capture;
    struct gf_stream *stream;
    struct places places;
    CUgraphNode *nodes; /* the same for cuStreamGetCaptureInfo */
    CUgraphEdgeData *data;
    struct gf_captured *next;
};

/* An event that was recorded in a capture: the places of its stream then. */
struct gf_mark {
    uint64_t id;
    unsigned count;
    struct {
        uint64_t node;
        CUgraphEdgeData data;
    } places[];
};

_Atomic unsigned gf_capture_count;
static struct gf_capture *captures; /* under the lock of graphs, like all of it */
static uint64_t next_id = 1;
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

/* One that ends may have a pthread_t that another one gets. */
static uint64_t this_thread(void) {
    static _Atomic uint64_t last;
    static _Thread_local uint64_t number;
    number = number != 0 ? number : atomic_fetch_add(&last, 1) + 1;
    return number;
}

static CUresult invalidate(struct gf_capture *capture, CUresult error) {
    capture->invalid = true;
    return error;
}

static bool add_place(struct places *places, struct gf_node *node, const CUgraphEdgeData *data) {
    for (unsigned i = 0; i < places->count; i++) {
        if (places->edges[i].from == node) {
            return true;
        }
    }
    if (places->count == places->room) {
        unsigned room = places->room == 0 ? 4 : 2 * places->room;
        struct gf_edge *edges = realloc(places->edges, room * sizeof *edges);
        if (edges == NULL) {
            return false;
        }
        places->edges = edges;
        places->room = room;
    }
    places->edges[places->count++] = (struct gf_edge){node, data == NULL ? (CUgraphEdgeData){0} : *data};
    return true;
}

/* Streams */

/* The stream of a handle; NULL: the legacy one, or none. */
static struct gf_stream *stream_of(CUstream handle) {
    struct gf_stream *stream;
    uint64_t wire;
    return gf_stream_look_up(handle, &stream, &wire) == CUDA_SUCCESS ? stream : NULL;
}

static bool is_legacy(CUstream handle) {
    return handle == NULL || handle == CU_STREAM_LEGACY;
}

static struct gf_captured *join(struct gf_capture *capture, struct gf_stream *stream) {
    struct gf_captured *captured = calloc(1, sizeof *captured);
    if (captured != NULL) {
        captured->capture = capture;
        captured->stream = stream;
        captured->next = capture->streams;
        capture->streams = captured;
        stream->captured = captured;
    }
    return captured;
}

static void end(struct gf_capture *capture) {
    while (capture->streams != NULL) {
        struct gf_captured *captured = capture->streams;
        capture->streams = captured->next;
        captured->stream->captured = NULL;
        free(captured->places.edges);
        free(captured->nodes);
        free(captured->data);
        free(captured);
    }
    struct gf_capture **place = &captures;
    while (*place != capture) {
        place = &(*place)->next;
    }
    *place = capture->next;
    if (capture->model != NULL) {
        capture->model->captured = false;
    }
    atomic_fetch_sub(&gf_capture_count, 1);
    free(capture->left.edges);
    free(capture);
}

static bool is_within(const struct gf_model *model, const struct gf_model *outer) {
    while (model != NULL && model != outer) {
        model = model->parent == NULL ? NULL : model->parent->model;
    }
    return model != NULL;
}

/* A graph ends, and with it those of its nodes, into which others may be captured. */
static void lose_within(const struct gf_model *model) {
    for (struct gf_capture *c = captures; c != NULL; c = c->next) {
        if (is_within(c->model, model)) {
            c->invalid = true;
            c->model = NULL;
            c->left.count = 0;
            for (struct gf_captured *s = c->streams; s != NULL; s = s->next) {
                s->places.count = 0;
            }
        }
    }
}

/* Ends a capture that has failed, and its graph, also one that was there before, but for a node's graphs. */
static void abandon(struct gf_capture *capture) {
    struct gf_model *model = capture->model;
    struct gf_graph *graph =
        model == NULL || model->parent != NULL ? NULL : gf_graph_find((CUgraph)model->handle);
    end(capture);
    if (graph != NULL) {
        lose_within(model);
        gf_objects_release(gf_object_end(graph, graph->model->handle));
    }
}

void gf_capture_forget(struct gf_stream *stream) {
    gf_graphs_lock();
    if (stream->captured != NULL) {
        struct gf_capture *capture = stream->captured->capture;
        if (capture->origin == stream->captured) {
            abandon(capture);
        } else {
            const struct places *places = &stream->captured->places;
            for (unsigned i = 0; i < places->count; i++) {
                capture->invalid |= !add_place(&capture->left, places->edges[i].from, NULL);
            }
            struct gf_captured **place = &capture->streams;
            while (*place != stream->captured) {
                place = &(*place)->next;
            }
            *place = stream->captured->next;
            free(stream->captured->places.edges);
            free(stream->captured->nodes);
            free(stream->captured->data);
            free(stream->captured);
            stream->captured = NULL;
        }
    }
    gf_graphs_unlock();
}

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

/* What is illegal */

/* The legacy stream would wait for blocking streams of its context, were they not captured. */
static CUresult check_implicit(CUstream handle, bool invalidates) {
    CUresult result = CUDA_SUCCESS;
    for (struct gf_capture *c = is_legacy(handle) ? captures : NULL; c != NULL; c = c->next) {
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
    for (struct gf_capture *c = thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED ? NULL : captures; c != NULL;
         c = c->next) {
        bool own = c->thread == this_thread();
        bool everywhere =
            c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && (own || everywhere)) {
            result = invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
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
    CUresult result = check_implicit(handle, true);
    result = result == CUDA_SUCCESS ? check_unsafe() : result;
    gf_graphs_unlock();
    return result;
}

static CUresult check_stream(CUstream handle) {
    struct gf_stream *stream = stream_of(handle);
    return stream != NULL && stream->captured != NULL
               ? invalidate(stream->captured->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
               : check_implicit(handle, true);
}

CUresult gf_capture_stream(CUstream handle) {
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
    for (struct gf_capture *c = captures; c != NULL; c = c->next) {
        for (struct gf_captured *s = c->streams; s != NULL; s = s->next) {
            if (s->stream->object.owner == context && (green == 0 || s->stream->green == green)) {
                result = invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
        }
    }
    result = result == CUDA_SUCCESS ? check_unsafe() : result;
    gf_graphs_unlock();
    return result;
}

static struct gf_capture *capture_of(const struct gf_mark *mark) {
    struct gf_capture *capture = mark == NULL ? NULL : captures;
    while (capture != NULL && capture->id != mark->id) {
        capture = capture->next;
    }
    return capture;
}

CUresult gf_capture_event(CUevent handle) {
    struct gf_event *event = gf_event_find(handle);
    if (event == NULL) {
        return CUDA_SUCCESS;
    }
    gf_graphs_lock();
    struct gf_capture *capture = capture_of(event->mark);
    if (capture != NULL) {
        capture->invalid = true;
    }
    CUresult result = event->mark != NULL ? CUDA_ERROR_CAPTURED_EVENT : check_unsafe();
    gf_graphs_unlock();
    return result;
}

/* Nodes */

/* Edges from kernels become those of a launch that need not wait for the end of what comes before it. */
static void make_programmatic(const struct places *places) {
    for (unsigned i = 0; i < places->count; i++) {
        if (places->edges[i].from->params.type != CU_GRAPH_NODE_TYPE_KERNEL) {
            return;
        }
    }
    for (unsigned i = 0; i < places->count; i++) {
        places->edges[i].data = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    }
}

/* Only kernels begin before the end of what they wait for. */
static void make_plain(const struct places *places) {
    for (unsigned i = 0; i < places->count; i++) {
        places->edges[i].data = (CUgraphEdgeData){0};
    }
}

/* A new node behind all places of the stream, which is then the only one. */
static CUresult add_node(struct gf_captured *captured, enum gf_form form, const void *params,
                         struct gf_node **added) {
    struct gf_capture *capture = captured->capture;
    struct places *places = &captured->places;
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    CUgraphNodeParams whole;
    if (form == GF_FORM_MEMCPY || form == GF_FORM_MEMSET || form == GF_FORM_BATCH) {
        whole = gf_form_in(form, params, (CUcontext)captured->stream->object.owner);
        form = GF_FORM_ANY;
        params = &whole;
    }
    CUresult result = gf_node_add(capture->model, form, params, added);
    for (unsigned i = 0; i < places->count && result == CUDA_SUCCESS; i++) {
        result = gf_node_depend(*added, places->edges[i].from, &places->edges[i].data);
    }
    result = result == CUDA_SUCCESS ? gf_node_publish(*added, NULL) : result;
    if (result != CUDA_SUCCESS) {
        return invalidate(capture, result);
    }
    places->count = 0;
    return add_place(places, *added, NULL) ? CUDA_SUCCESS : invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
}

/* What a node keeps of its launch, and the priority of its stream if the launch has none. */
static CUresult keep_attributes(struct gf_node *node, const struct gf_stream *stream,
                                const CUlaunchConfig *config) {
    if (stream->priority == 0) {
        return gf_params_attributes(node, config->attrs, config->numAttrs);
    }
    CUlaunchAttribute *all = malloc((config->numAttrs + 1) * sizeof *all);
    if (all == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    all[0] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = stream->priority};
    if (config->numAttrs > 0) {
        memcpy(&all[1], config->attrs, config->numAttrs * sizeof *all);
    }
    CUresult result = gf_params_attributes(node, all, config->numAttrs + 1);
    free(all);
    return result;
}

/* `told`: the same parameters, if what the node made is to be put there. */
static bool takes(CUstream handle, enum gf_form form, const void *params, void *told,
                  const CUlaunchConfig *config, CUresult *result) {
    struct gf_stream *stream = stream_of(handle);
    struct gf_node *node = NULL;
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    if (captured != NULL && config != NULL && gf_launch_is_programmatic(config)) {
        make_programmatic(&captured->places);
    }
    if (captured != NULL && form != GF_FORM_KERNEL) {
        make_plain(&captured->places);
    }
    *result = captured != NULL ? add_node(captured, form, params, &node) : check_implicit(handle, true);
    if (node != NULL && *result == CUDA_SUCCESS && config != NULL) {
        *result = keep_attributes(node, stream, config);
    }
    if (node != NULL && *result == CUDA_SUCCESS && told != NULL) {
        gf_params_tell(node, form, told);
    }
    gf_graphs_unlock();
    return captured != NULL || *result != CUDA_SUCCESS;
}

bool gf_capture_takes(CUstream stream, enum gf_form form, const void *params, CUresult *result) {
    return takes(stream, form, params, NULL, NULL, result);
}

bool gf_capture_takes_telling(CUstream stream, enum gf_form form, void *params, CUresult *result) {
    return takes(stream, form, params, params, NULL, result);
}

bool gf_capture_takes_launch(const CUlaunchConfig *config, CUfunction function, void **kernel_params,
                             void **extra, CUresult *result) {
    CUDA_KERNEL_NODE_PARAMS_v3 params = {.func = function,
                                         .gridDimX = config->gridDimX,
                                         .gridDimY = config->gridDimY,
                                         .gridDimZ = config->gridDimZ,
                                         .blockDimX = config->blockDimX,
                                         .blockDimY = config->blockDimY,
                                         .blockDimZ = config->blockDimZ,
                                         .sharedMemBytes = config->sharedMemBytes,
                                         .kernelParams = kernel_params,
                                         .extra = extra};
    if (gf_kernel_find((CUkernel)function) != NULL) { /* each in its own member */
        params.kern = (CUkernel)function;
        *result = gf_cuKernelGetFunction(&params.func, params.kern);
        if (*result != CUDA_SUCCESS) {
            return true;
        }
    }
    return takes(config->hStream, GF_FORM_KERNEL, &params, NULL, config, result);
}

/* Events */

static struct gf_mark *mark_of(const struct gf_captured *captured) {
    const struct places *places = &captured->places;
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
    struct gf_stream *stream = stream_of(stream_handle);
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    if (captured == NULL) {
        *result = check_implicit(stream_handle, true);
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
            !add_place(&captured->places, object->node, &mark->places[i].data)) {
            return invalidate(captured->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    return CUDA_SUCCESS;
}

static CUresult wait_in(CUstream handle, struct gf_stream *stream, const struct gf_mark *mark) {
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    struct gf_capture *other = capture_of(mark), *capture = captured != NULL ? captured->capture : other;
    if (capture == NULL || other == NULL) {
        return capture == NULL ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                               : invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (capture->invalid || other->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (capture != other) {
        invalidate(other, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (is_legacy(handle)) {
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    captured = captured == NULL ? join(capture, stream) : captured;
    return captured == NULL ? CUDA_ERROR_OUT_OF_MEMORY : merge(captured, mark);
}

bool gf_capture_takes_wait(CUstream handle, CUevent event_handle, unsigned flags, CUresult *result) {
    if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
        return gf_capture_takes(handle, GF_FORM_WAIT, &event_handle, result);
    }
    struct gf_event *event = gf_event_find(event_handle);
    struct gf_stream *stream = stream_of(handle);
    gf_graphs_lock();
    bool taken = (stream != NULL && stream->captured != NULL) || event->mark != NULL;
    *result = taken ? wait_in(handle, stream, event->mark) : check_implicit(handle, true);
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
    return record(event, &request);
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
    return Flags != CU_EVENT_WAIT_DEFAULT
               ? CUDA_ERROR_INVALID_VALUE
               : gf_event_send(event, GF_OP_cuStreamWaitEvent, &request, sizeof request);
}

/* Beginning, ending, asking */

static CUresult read_places(struct places *places, const struct gf_model *model, const CUgraphNode *nodes,
                            const CUgraphEdgeData *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct gf_node *node;
        if (nodes == NULL || gf_nodes_of(model, &nodes[i], 1, &node) != CUDA_SUCCESS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!add_place(places, node, data == NULL ? NULL : &data[i])) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

/* With the lock held; `model` NULL: a new graph. */
static CUresult begin(struct gf_stream *stream, struct gf_model *model, struct places *places,
                      CUstreamCaptureMode mode) {
    struct gf_capture *capture = calloc(1, sizeof *capture);
    CUgraph handle;
    bool existing = model != NULL;
    if (capture == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!existing &&
        ((model = gf_model_new()) == NULL || gf_model_publish(model, NULL, &handle) != CUDA_SUCCESS)) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct gf_capture){.id = next_id++, .model = model, .mode = mode, .thread = this_thread()};
    capture->next = captures;
    captures = capture;
    model->captured = true;
    atomic_fetch_add(&gf_capture_count, 1);
    capture->origin = join(capture, stream);
    if (capture->origin == NULL) {
        existing ? end(capture) : abandon(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->origin->places = *places;
    return CUDA_SUCCESS;
}

CUresult gf_capture_begin(CUstream handle, CUstreamCaptureMode mode, struct gf_model *model,
                          const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count) {
    struct gf_stream *stream = stream_of(handle);
    struct places places = {0};
    if (stream == NULL) {
        return is_legacy(handle) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_INVALID_HANDLE;
    }
    gf_graphs_lock();
    CUresult result = stream->captured != NULL           ? CUDA_ERROR_ILLEGAL_STATE
                      : model != NULL && model->captured ? CUDA_ERROR_INVALID_VALUE
                                                         : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && model != NULL) {
        result = read_places(&places, model, nodes, data, count);
    }
    result = result == CUDA_SUCCESS ? begin(stream, model, &places, mode) : result;
    if (result != CUDA_SUCCESS) {
        free(places.edges);
    }
    gf_graphs_unlock();
    return result;
}

/* Whether the origin comes behind all work of the other streams. */
static bool is_joined(struct gf_capture *capture) {
    const struct places *places = &capture->origin->places;
    bool joined = gf_model_mark(capture->model, places->edges, places->count);
    for (unsigned i = 0; i < capture->left.count; i++) {
        joined &= capture->left.edges[i].from->mark != 0;
    }
    for (struct gf_captured *s = capture->streams; s != NULL; s = s->next) {
        for (unsigned i = 0; i < s->places.count; i++) {
            joined &= s->places.edges[i].from->mark != 0;
        }
    }
    return joined;
}

/* No stream, and none of those that always are. */
static bool is_unknown(CUstream handle, const struct gf_stream *stream) {
    return stream == NULL && handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
}

CUresult gf_capture_end(CUstream handle, CUgraph *graph) {
    struct gf_stream *stream = stream_of(handle);
    CUresult result;
    if (graph != NULL) {
        *graph = NULL;
    }
    if (is_unknown(handle, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    struct gf_capture *capture = captured == NULL ? NULL : captured->capture;
    if (capture == NULL) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture->origin != captured) {
        result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    } else {
        bool foreign = capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread();
        result = capture->invalid     ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : foreign            ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                 : is_joined(capture) ? CUDA_SUCCESS
                                      : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        if (result == CUDA_SUCCESS) {
            if (graph != NULL) {
                *graph = (CUgraph)capture->model->handle;
            }
            end(capture);
        } else {
            abandon(capture);
        }
    }
    gf_graphs_unlock();
    return result;
}

static bool list_places(struct gf_captured *captured, bool *lossy) {
    static const CUgraphEdgeData plain;
    const struct places *places = &captured->places;
    CUgraphNode *nodes = realloc(captured->nodes, (places->count + 1) * sizeof *nodes);
    captured->nodes = nodes == NULL ? captured->nodes : nodes;
    CUgraphEdgeData *data = realloc(captured->data, (places->count + 1) * sizeof *data);
    captured->data = data == NULL ? captured->data : data;
    for (unsigned i = 0; nodes != NULL && data != NULL && i < places->count; i++) {
        nodes[i] = (CUgraphNode)places->edges[i].from->handle;
        data[i] = places->edges[i].data;
        *lossy |= memcmp(&data[i], &plain, sizeof plain) != 0;
    }
    return nodes != NULL && data != NULL;
}

CUresult gf_capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                         const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *count) {
    struct gf_stream *stream = stream_of(handle);
    bool lossy = false;
    if (is_unknown(handle, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (data != NULL && nodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    CUresult result = check_implicit(handle, false);
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    if (result == CUDA_SUCCESS) {
        bool active = captured != NULL && !captured->capture->invalid;
        *status = captured == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
                  : active         ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                   : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        captured = active ? captured : NULL;
        result = captured == NULL || list_places(captured, &lossy) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        result = lossy && nodes != NULL && data == NULL ? CUDA_ERROR_LOSSY_QUERY : result;
    }
    if (result == CUDA_SUCCESS && id != NULL) {
        *id = captured == NULL ? 0 : captured->capture->id;
    }
    if (result == CUDA_SUCCESS && graph != NULL) {
        *graph = captured == NULL ? NULL : (CUgraph)captured->capture->model->handle;
    }
    if (result == CUDA_SUCCESS && nodes != NULL) {
        *nodes = captured == NULL ? NULL : captured->nodes;
    }
    if (result == CUDA_SUCCESS && data != NULL) {
        *data = captured == NULL ? NULL : captured->data;
    }
    if (result == CUDA_SUCCESS && count != NULL) {
        *count = captured == NULL ? 0 : captured->places.count;
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_capture_update(CUstream handle, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                           size_t count, unsigned flags) {
    struct gf_stream *stream = stream_of(handle);
    struct places places = {0};
    if (is_unknown(handle, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    CUresult result = captured == NULL ? CUDA_ERROR_ILLEGAL_STATE
                      : captured->capture->invalid
                          ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : read_places(&places, captured->capture->model, nodes, data, count);
    if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        captured->places.count = 0;
    }
    for (unsigned i = 0; i < places.count && result == CUDA_SUCCESS; i++) {
        bool added = add_place(&captured->places, places.edges[i].from, &places.edges[i].data);
        result = added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(places.edges);
    gf_graphs_unlock();
    return result;
}
