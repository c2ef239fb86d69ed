/* What is told of a capture, and where a stream of one is put. */
#include <stdlib.h>
#include <string.h>

#include "capture_state.h"
#include "functions.h"
#include "objects.h"

static bool list_places(struct gf_captured *captured, bool *lossy) {
    static const CUgraphEdgeData plain;
    const struct gf_places *places = &captured->places;
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
    struct gf_stream *stream = gf_capture_stream_of(handle);
    bool lossy = false;
    if (gf_capture_is_unknown(handle, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (data != NULL && nodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    CUresult result = gf_capture_implicit(handle, false);
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
    struct gf_stream *stream = gf_capture_stream_of(handle);
    struct gf_places places = {0};
    if (gf_capture_is_unknown(handle, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    CUresult result = captured == NULL ? CUDA_ERROR_ILLEGAL_STATE
                      : captured->capture->invalid
                          ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : gf_places_read(&places, captured->capture->model, nodes, data, count);
    if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        captured->places.count = 0;
    }
    for (unsigned i = 0; i < places.count && result == CUDA_SUCCESS; i++) {
        bool added = gf_places_add(&captured->places, places.edges[i].from, &places.edges[i].data);
        result = added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(places.edges);
    gf_graphs_unlock();
    return result;
}
