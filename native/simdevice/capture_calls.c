/* Beginning and ending captures, and what can be asked about one. */
#include "capture_state.h"
#include "stream.h"
#include <stdlib.h>

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    *mode = sim_capture_exchange_mode(*mode);
    return CUDA_SUCCESS;
}

/* `existing` NULL: into a new graph. */
static CUresult begin(struct sim_stream *stream, CUgraph existing, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode) {
    struct sim_links links = {0};
    SIM_REQUIRE((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    if (stream->type == SIM_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    SIM_GRAPHS_LOCKED();
    if (sim_captured_of(stream))
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_graph *graph = existing ? sim_graph_find(existing) : sim_graph_new(NULL);
    if (!graph)
        return existing ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        graph->capture ? CUDA_ERROR_INVALID_VALUE : sim_links_read(graph, dependencies, data, count, &links);
    if (result == CUDA_SUCCESS)
        result = sim_capture_begin(stream, graph, mode, &links);
    if (result != CUDA_SUCCESS) {
        free(links.items);
        if (!existing)
            sim_graph_free(graph);
    }
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = begin(stream, NULL, NULL, NULL, 0, mode);
    sim_release(stream);
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static bool is_graph(CUgraph handle) {
    SIM_GRAPHS_LOCKED();
    return sim_graph_find(handle) != NULL;
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode) {
    struct sim_stream *stream;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(is_graph(graph));
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = begin(stream, graph, dependencies, data, count, mode);
    sim_release(stream);
    return result;
}

static CUresult end(struct sim_stream *stream, CUgraph *out) {
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (!captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = captured->capture;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    bool foreign = capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_capture_thread();
    CUresult result = capture->invalid              ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : foreign                     ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                      : sim_capture_joined(capture) ? CUDA_SUCCESS
                                                    : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS && out)
        *out = SIM_POINTER(CUgraph, capture->graph);
    if (result == CUDA_SUCCESS)
        sim_capture_end(capture);
    else
        sim_capture_abandon(capture);
    return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    struct sim_stream *stream;
    SIM_TRY(sim_enter());
    SIM_TRY(sim_stream_acquire(handle, &stream));
    if (graph)
        *graph = NULL;
    CUresult result = end(stream, graph);
    sim_release(stream);
    return result;
}

/* The stream's dependencies as arrays that the program may read. */
static bool publish(struct sim_captured *captured, bool *lossy) {
    const struct sim_links *links = &captured->dependencies;
    CUgraphNode *nodes = realloc(captured->nodes, (links->count + 1) * sizeof(CUgraphNode));
    if (nodes)
        captured->nodes = nodes;
    CUgraphEdgeData *edges = realloc(captured->edges, (links->count + 1) * sizeof *edges);
    if (edges)
        captured->edges = edges;
    if (!nodes || !edges)
        return false;
    for (size_t i = 0; i < links->count; i++) {
        nodes[i] = SIM_POINTER(CUgraphNode, links->items[i].from);
        edges[i] = links->items[i].data;
        *lossy |= !sim_edge_is_plain(&edges[i]);
    }
    return true;
}

static CUresult describe(struct sim_stream *stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                         CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
                         size_t *count) {
    bool lossy = false;
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    *status = !captured                    ? CU_STREAM_CAPTURE_STATUS_NONE
              : captured->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (active && !publish(captured, &lossy))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (lossy && dependencies && !edges)
        return CUDA_ERROR_LOSSY_QUERY;
    if (id)
        *id = active ? captured->capture->id : 0;
    if (graph)
        *graph = active ? SIM_POINTER(CUgraph, captured->capture->graph) : NULL;
    if (dependencies)
        *dependencies = active ? captured->nodes : NULL;
    if (edges)
        *edges = active ? captured->edges : NULL;
    if (count)
        *count = active ? captured->dependencies.count : 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count) {
    struct sim_stream *stream;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(status && (dependencies || !edges));
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = sim_capture_check_implicit(stream);
    if (result == CUDA_SUCCESS)
        result = describe(stream, status, id, graph, dependencies, edges, count);
    sim_release(stream);
    return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return cuStreamGetCaptureInfo_v3(stream, status, NULL, NULL, NULL, NULL, NULL);
}

static CUresult update(struct sim_stream *stream, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                       size_t count, unsigned flags) {
    struct sim_links links = {0};
    SIM_GRAPHS_LOCKED();
    struct sim_captured *captured = sim_captured_of(stream);
    if (!captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (captured->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult result = sim_links_read(captured->capture->graph, nodes, data, count, &links);
    if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        captured->dependencies.count = 0;
    for (size_t i = 0; result == CUDA_SUCCESS && i < links.count; i++)
        if (!sim_links_include(&captured->dependencies, links.items[i].from, &links.items[i].data))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    free(links.items);
    return result;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes,
                                              const CUgraphEdgeData *data, size_t count, unsigned int flags) {
    struct sim_stream *stream;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = update(stream, nodes, data, count, flags);
    sim_release(stream);
    return result;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count,
                                           unsigned int flags) {
    return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}
