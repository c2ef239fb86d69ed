#include "capture_state.h"
#include "stream.h"
#include <stdlib.h>
#include <string.h>

static struct sim_capture *captures;
static uint64_t next_id = 1;
static _Atomic uint64_t next_thread = 1;

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUstreamCaptureMode sim_capture_exchange_mode(CUstreamCaptureMode mode) {
    CUstreamCaptureMode before = thread_mode;
    thread_mode = mode;
    return before;
}

uint64_t sim_capture_thread(void) {
    static __thread uint64_t thread;
    if (!thread)
        thread = atomic_fetch_add(&next_thread, 1);
    return thread;
}

struct sim_captured *sim_captured_of(const struct sim_stream *stream) {
    return atomic_load_explicit(&stream->captured, memory_order_acquire);
}

struct sim_capture *sim_capture_of(uint64_t id) {
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        if (capture->id == id)
            return capture;
    return NULL;
}

/* The stream becomes part of the capture; it takes over the links. */
static struct sim_captured *join(struct sim_capture *capture, struct sim_stream *stream,
                                 struct sim_links *links) {
    struct sim_captured *captured = calloc(1, sizeof *captured);
    if (!captured)
        return NULL;
    captured->capture = capture;
    captured->stream = stream;
    captured->dependencies = *links;
    captured->next = capture->streams;
    capture->streams = captured;
    sim_retain(stream);
    atomic_store_explicit(&stream->captured, captured, memory_order_release);
    return captured;
}

/* Marks in `joined`, by place, what the node waits for, and itself. */
static void reach(const struct sim_links *links, bool *joined, struct sim_node **stack) {
    size_t depth = 0;
    for (size_t i = 0; i < links->count; i++) {
        if (!joined[links->items[i].from->place]) {
            joined[links->items[i].from->place] = true;
            stack[depth++] = links->items[i].from;
        }
        while (depth) {
            const struct sim_links *before = &stack[--depth]->dependencies;
            for (size_t j = 0; j < before->count; j++) {
                struct sim_node *node = before->items[j].from;
                if (!joined[node->place]) {
                    joined[node->place] = true;
                    stack[depth++] = node;
                }
            }
        }
    }
}

bool sim_capture_joined(struct sim_capture *capture) {
    struct sim_graph *graph = capture->graph;
    bool *joined = calloc(graph->node_count + 1, sizeof *joined);
    struct sim_node **stack = calloc(graph->node_count + 1, sizeof(struct sim_node *));
    bool all = joined && stack;
    if (all) {
        sim_graph_number(graph);
        reach(&sim_captured_of(capture->origin)->dependencies, joined, stack);
        for (struct sim_captured *captured = capture->streams; captured; captured = captured->next)
            for (size_t i = 0; i < captured->dependencies.count; i++)
                all = all && joined[captured->dependencies.items[i].from->place];
    }
    free(joined);
    free(stack);
    return all;
}

/* ---- what is illegal ---- */

static CUresult invalidate(struct sim_capture *capture, CUresult error) {
    capture->invalid = true;
    return error;
}

/* The legacy stream would wait for streams of its context that are captured, were they not. */
static CUresult check_implicit(const struct sim_stream *stream, bool invalidates) {
    CUresult result = CUDA_SUCCESS;
    if (stream->type != SIM_STREAM_LEGACY)
        return CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        for (struct sim_captured *captured = capture->streams; captured; captured = captured->next)
            if (captured->stream->blocking && captured->stream->context == stream->context) {
                result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                capture->invalid |= invalidates;
            }
    return result;
}

static CUresult ask_implicit(const struct sim_stream *stream) {
    SIM_GRAPHS_LOCKED();
    return check_implicit(stream, false);
}

static CUresult check_stream(struct sim_stream *stream) {
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (captured)
        return invalidate(captured->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return check_implicit(stream, true);
}

static CUresult check_unsafe(void) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    SIM_GRAPHS_LOCKED();
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        bool own = capture->thread == sim_capture_thread();
        bool everywhere =
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && (own || everywhere))
            result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

static CUresult check_context(struct sim_context *context, const struct sim_green *green) {
    CUresult result = CUDA_SUCCESS;
    sim_graphs_lock();
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        for (struct sim_captured *captured = capture->streams; captured; captured = captured->next)
            if (captured->stream->context == context && (!green || captured->stream->green == green))
                result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    sim_graphs_unlock();
    return result != CUDA_SUCCESS ? result : check_unsafe();
}

/* ---- nodes ---- */

/* A launch that need not wait for the end of the kernel before it in its stream waits for the end of all
 * else. */
static void make_programmatic(struct sim_captured *captured) {
    const struct sim_links *links = &captured->dependencies;
    if (links->count == 1 && links->items[0].from == captured->last &&
        captured->last->params.type == CU_GRAPH_NODE_TYPE_KERNEL)
        links->items[0].data = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                                 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

/* Only kernels begin before the end of what they wait for. */
static void make_plain(struct sim_links *links) {
    static const CUgraphEdgeData plain;
    size_t count = links->count;
    links->count = 0;
    for (size_t i = 0; i < count; i++) /* they need no more room than they had */
        sim_links_include(links, links->items[i].from, &plain);
}

/* A kernel has the priority of its stream, unless its launch has one. `room` is for one attribute more. */
static void take_priority(struct sim_node_work *work, const struct sim_stream *stream,
                          CUlaunchAttribute *room) {
    if (work->params.type != CU_GRAPH_NODE_TYPE_KERNEL || stream->priority == 0)
        return;
    for (unsigned i = 0; i < work->attribute_count; i++)
        if (work->attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            return;
    if (work->attribute_count)
        memcpy(room, work->attributes, work->attribute_count * sizeof *room);
    room[work->attribute_count++] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = stream->priority};
    work->attributes = room;
}

/* Adds a node behind the stream's place, which is then behind the node. */
static CUresult add(struct sim_captured *captured, struct sim_node_work *work) {
    struct sim_capture *capture = captured->capture;
    CUlaunchAttribute attributes[work->attribute_count + 1];
    struct sim_node *node;
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    work->context = captured->stream->context;
    CUcontext context = SIM_POINTER(CUcontext, work->context);
    if (work->params.type == CU_GRAPH_NODE_TYPE_MEMCPY)
        work->params.memcpy.copyCtx = context;
    else if (work->params.type == CU_GRAPH_NODE_TYPE_MEMSET)
        work->params.memset.ctx = context;
    else if (work->params.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        work->params.memOp.ctx = context;
    if (work->programmatic)
        make_programmatic(captured);
    if (work->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        make_plain(&captured->dependencies);
    struct sim_node_work whole = *work;
    take_priority(&whole, captured->stream, attributes);
    CUresult result = sim_graph_add(capture->graph, &whole, &captured->dependencies, &node);
    if (result != CUDA_SUCCESS)
        return result; /* for what the call was given: no capture ends by that */
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        work->params.alloc.dptr = node->params.alloc.dptr;
    captured->dependencies.count = 0;
    captured->last = node;
    if (!sim_links_add(&captured->dependencies, node, NULL))
        return invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

static bool takes(struct sim_stream *stream, struct sim_node_work *work, CUresult *result) {
    struct sim_captured *captured = sim_captured_of(stream);
    *result = captured ? add(captured, work) : check_implicit(stream, true);
    return captured || *result != CUDA_SUCCESS;
}

static bool takes_op(struct sim_stream *stream, const struct sim_op *op, CUresult *result) {
    struct sim_node_work work = {0};
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (captured && !op->class->describe) {
        *result = captured->capture->invalid
                      ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : invalidate(captured->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        return true;
    }
    if (captured)
        op->class->describe(op, &work);
    return takes(stream, &work, result);
}

static bool takes_params(struct sim_stream *stream, CUgraphNodeParams *params, CUresult *result) {
    struct sim_node_work work = {.params = *params};
    SIM_GRAPHS_LOCKED();
    bool taken = takes(stream, &work, result);
    params->alloc = work.params.alloc;
    return taken;
}

/* ---- events ---- */

static CUresult mark_place(const struct sim_captured *captured, struct sim_capture_mark *mark) {
    const struct sim_links *links = &captured->dependencies;
    uint64_t *nodes = malloc((links->count + 1) * sizeof *nodes);
    CUgraphEdgeData *edges = malloc((links->count + 1) * sizeof *edges);
    if (!nodes || !edges) {
        free(nodes);
        free(edges);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < links->count; i++) {
        nodes[i] = links->items[i].from->object.handle;
        edges[i] = links->items[i].data;
    }
    sim_capture_mark_drop(mark);
    *mark = (struct sim_capture_mark){captured->capture->id, nodes, edges, links->count};
    return CUDA_SUCCESS;
}

static bool record(struct sim_stream *stream, struct sim_capture_mark *mark, CUresult *result) {
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (captured)
        *result =
            captured->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : mark_place(captured, mark);
    else
        *result = check_implicit(stream, true);
    return captured || *result != CUDA_SUCCESS;
}

static void set_edge(struct sim_capture_mark *mark, CUgraphEdgeData edge) {
    SIM_GRAPHS_LOCKED();
    if (mark->count == 1)
        mark->edges[0] = edge;
}

/* Adds what the mark stands for to a stream's place; nodes that were removed meanwhile need no waiting. */
static CUresult merge(struct sim_captured *captured, const struct sim_capture_mark *mark) {
    struct sim_links *links = &captured->dependencies;
    for (size_t i = 0; i < mark->count; i++) {
        struct sim_node *node = sim_node_find((CUgraphNode)(uintptr_t)mark->nodes[i]);
        bool there = node && node->graph == captured->capture->graph;
        if (there && !sim_links_include(links, node, &mark->edges[i]))
            return invalidate(captured->capture, CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

static CUresult wait_in(struct sim_stream *stream, struct sim_captured *captured, struct sim_capture *other,
                        const struct sim_capture_mark *mark) {
    struct sim_capture *capture = captured ? captured->capture : other;
    if (!capture || (captured && !other)) /* the event is outside, or of a capture that has ended */
        return capture ? invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                       : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (capture->invalid || other->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (capture != other) {
        invalidate(other, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (stream->type == SIM_STREAM_LEGACY)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!captured)
        captured = join(capture, stream, &(struct sim_links){0});
    return captured ? merge(captured, mark) : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool wait_for(struct sim_stream *stream, const struct sim_capture_mark *mark, CUresult *result) {
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (captured || mark->id)
        *result = wait_in(stream, captured, mark->id ? sim_capture_of(mark->id) : NULL, mark);
    else
        *result = check_implicit(stream, true);
    return captured || mark->id || *result != CUDA_SUCCESS;
}

static void asked(const struct sim_capture_mark *mark) {
    SIM_GRAPHS_LOCKED();
    struct sim_capture *capture = sim_capture_of(mark->id);
    if (capture)
        capture->invalid = true;
}

/* A capture whose origin is gone can be ended by nobody else. What another stream did before it went is to be
 * joined all the same. */
static void forget(struct sim_captured *captured) {
    struct sim_capture *capture = captured->capture;
    if (capture->origin == captured->stream)
        sim_capture_abandon(capture);
}

static void forget_stream(struct sim_stream *stream) {
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (captured)
        forget(captured);
}

static void forget_context(struct sim_context *context) {
    SIM_GRAPHS_LOCKED();
    for (struct sim_capture *capture = captures, *next; capture; capture = next) {
        next = capture->next;
        if (capture->origin->context == context)
            forget(sim_captured_of(capture->origin));
    }
}

static const struct sim_capture_rules rules = {
    .takes = takes_op,
    .takes_params = takes_params,
    .check_stream = check_stream,
    .check_context = check_context,
    .check_unsafe = check_unsafe,
    .check_implicit = ask_implicit,
    .record = record,
    .set_edge = set_edge,
    .wait = wait_for,
    .asked = asked,
    .forget = forget_stream,
    .forget_context = forget_context,
};

CUresult sim_capture_begin(struct sim_stream *stream, struct sim_graph *graph, CUstreamCaptureMode mode,
                           struct sim_links *links) {
    struct sim_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *capture = (struct sim_capture){
        .id = next_id++, .graph = graph, .mode = mode, .thread = sim_capture_thread(), .origin = stream};
    if (!join(capture, stream, links)) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph->capture = capture;
    capture->next = captures;
    captures = capture;
    sim_capture_put_in_effect(&rules);
    return CUDA_SUCCESS;
}

void sim_capture_end(struct sim_capture *capture) {
    while (capture->streams) {
        struct sim_captured *captured = capture->streams;
        capture->streams = captured->next;
        atomic_store_explicit(&captured->stream->captured, NULL, memory_order_release);
        sim_release(captured->stream);
        free(captured->dependencies.items);
        free(captured->nodes);
        free(captured->edges);
        free(captured);
    }
    struct sim_capture **place = &captures;
    while (*place != capture)
        place = &(*place)->next;
    *place = capture->next;
    if (capture->graph)
        capture->graph->capture = NULL;
    if (!captures)
        sim_capture_put_in_effect(NULL);
    free(capture);
}

static bool is_within(const struct sim_graph *graph, const struct sim_graph *outer) {
    while (graph && graph != outer)
        graph = graph->parent ? graph->parent->graph : NULL;
    return graph != NULL;
}

/* A graph ends, and with it those of its nodes, into which others may be captured. */
static void lose_within(const struct sim_graph *graph) {
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        if (!is_within(capture->graph, graph))
            continue;
        capture->invalid = true;
        capture->graph = NULL;
        for (struct sim_captured *captured = capture->streams; captured; captured = captured->next)
            captured->dependencies.count = 0;
    }
}

void sim_capture_abandon(struct sim_capture *capture) {
    struct sim_graph *graph = capture->graph;
    sim_capture_end(capture);
    if (graph && !graph->parent) { /* a node's graphs are the node's */
        lose_within(graph);
        sim_graph_free(graph);
    }
}
