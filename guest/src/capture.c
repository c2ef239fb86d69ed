#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "capture_state.h"
#include "objects.h"

_Atomic unsigned gf_capture_count;
struct gf_capture *gf_captures;
static uint64_t next_id = 1;

/* One that ends may have a pthread_t that another one gets. */
uint64_t gf_capture_thread(void) {
    static _Atomic uint64_t last;
    static _Thread_local uint64_t number;
    number = number != 0 ? number : atomic_fetch_add(&last, 1) + 1;
    return number;
}

bool gf_places_add(struct gf_places *places, struct gf_node *node, const CUgraphEdgeData *data) {
    const struct gf_edge edge = {node, data == NULL ? (CUgraphEdgeData){0} : *data};
    for (unsigned i = 0; i < places->count; i++) {
        if (places->edges[i].from == node &&
            memcmp(&places->edges[i].data, &edge.data, sizeof edge.data) == 0) {
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
    places->edges[places->count++] = edge;
    return true;
}

struct gf_stream *gf_capture_stream_of(CUstream handle) {
    struct gf_stream *stream;
    uint64_t wire;
    return gf_stream_look_up(handle, &stream, &wire) == CUDA_SUCCESS ? stream : NULL;
}

bool gf_capture_is_legacy(CUstream handle) {
    return handle == NULL || handle == CU_STREAM_LEGACY;
}

bool gf_capture_is_unknown(CUstream handle, const struct gf_stream *stream) {
    return stream == NULL && handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
}

struct gf_capture *gf_capture_of_mark(const struct gf_mark *mark) {
    struct gf_capture *capture = mark == NULL ? NULL : gf_captures;
    while (capture != NULL && capture->id != mark->id) {
        capture = capture->next;
    }
    return capture;
}

struct gf_captured *gf_capture_join(struct gf_capture *capture, struct gf_stream *stream) {
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
    struct gf_capture **place = &gf_captures;
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
    for (struct gf_capture *c = gf_captures; c != NULL; c = c->next) {
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
            const struct gf_places *places = &stream->captured->places;
            for (unsigned i = 0; i < places->count; i++) {
                capture->invalid |= !gf_places_add(&capture->left, places->edges[i].from, NULL);
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

/* What edges of a node say is checked when a call adds them, before it is known what they lead to: to a
 * kernel all of them may. */
static bool is_place(const struct gf_node *node, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                     size_t i) {
    for (size_t j = 0; j < i; j++) {
        if (nodes[j] == nodes[i] && (data == NULL || memcmp(&data[j], &data[i], sizeof *data) == 0)) {
            return false;
        }
    }
    return data == NULL || gf_is_edge(CU_GRAPH_NODE_TYPE_KERNEL, node, &data[i]);
}

CUresult gf_places_read(struct gf_places *places, const struct gf_model *model, const CUgraphNode *nodes,
                        const CUgraphEdgeData *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct gf_node *node;
        if (nodes == NULL || gf_nodes_of(model, &nodes[i], 1, &node) != CUDA_SUCCESS ||
            !is_place(node, nodes, data, i)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!gf_places_add(places, node, data == NULL ? NULL : &data[i])) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

/* With the lock held; `model` NULL: a new graph. */
static CUresult begin(struct gf_stream *stream, struct gf_model *model, struct gf_places *places,
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
    *capture =
        (struct gf_capture){.id = next_id++, .model = model, .mode = mode, .thread = gf_capture_thread()};
    capture->next = gf_captures;
    gf_captures = capture;
    model->captured = true;
    atomic_fetch_add(&gf_capture_count, 1);
    capture->origin = gf_capture_join(capture, stream);
    if (capture->origin == NULL) {
        existing ? end(capture) : abandon(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->origin->places = *places;
    return CUDA_SUCCESS;
}

CUresult gf_capture_begin(CUstream handle, CUstreamCaptureMode mode, struct gf_model *model,
                          const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count) {
    struct gf_stream *stream = gf_capture_stream_of(handle);
    struct gf_places places = {0};
    if (stream == NULL) {
        return gf_capture_is_legacy(handle) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                            : CUDA_ERROR_INVALID_HANDLE;
    }
    gf_graphs_lock();
    CUresult result = stream->captured != NULL           ? CUDA_ERROR_ILLEGAL_STATE
                      : model != NULL && model->captured ? CUDA_ERROR_INVALID_VALUE
                                                         : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && model != NULL) {
        result = gf_places_read(&places, model, nodes, data, count);
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
    const struct gf_places *places = &capture->origin->places;
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

CUresult gf_capture_end(CUstream handle, CUgraph *graph) {
    struct gf_stream *stream = gf_capture_stream_of(handle);
    CUresult result;
    if (graph != NULL) {
        *graph = NULL;
    }
    if (gf_capture_is_unknown(handle, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    struct gf_capture *capture = captured == NULL ? NULL : captured->capture;
    if (capture == NULL) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture->origin != captured) {
        result = gf_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    } else {
        bool foreign =
            capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != gf_capture_thread();
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
