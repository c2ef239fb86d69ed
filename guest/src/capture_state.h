/* What the files of stream capture share: which captures there are, and where their streams stand. All of it
 * under the lock of graphs. */
#pragma once
#include "capture.h"
#include "stream.h"

/* Nodes behind which the next one comes. */
struct gf_places {
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
    struct gf_places left; /* of streams that were destroyed: it is to be joined all the same */
    struct gf_capture *next;
};

/* A stream's part in a capture. */
struct gf_captured {
    struct gf_capture *capture;
    struct gf_stream *stream;
    struct gf_places places;
    struct gf_node *last; /* that the stream itself was given; NULL: none */
    CUgraphNode *nodes;   /* the same for cuStreamGetCaptureInfo */
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

extern struct gf_capture *gf_captures;

static inline CUresult gf_capture_invalidate(struct gf_capture *capture, CUresult error) {
    capture->invalid = true;
    return error;
}

/* Adds a node that the next one comes behind, if it is not there by such an edge; `data` NULL: a plain one.
 * False: no memory. */
bool gf_places_add(struct gf_places *places, struct gf_node *node, const CUgraphEdgeData *data);
/* The same for nodes that the program names. */
CUresult gf_places_read(struct gf_places *places, const struct gf_model *model, const CUgraphNode *nodes,
                        const CUgraphEdgeData *data, size_t count);

/* A number of this thread that no other one ever has. */
uint64_t gf_capture_thread(void);
/* The stream of a handle; NULL: the legacy one, or none. */
struct gf_stream *gf_capture_stream_of(CUstream handle);
bool gf_capture_is_legacy(CUstream handle);
/* No stream, and none of those that always are. */
bool gf_capture_is_unknown(CUstream handle, const struct gf_stream *stream);
/* Makes a stream part of a capture; NULL: no memory. */
struct gf_captured *gf_capture_join(struct gf_capture *capture, struct gf_stream *stream);
/* Refuses the legacy stream, which would wait for blocking streams of its context, were they not captured. */
CUresult gf_capture_implicit(CUstream handle, bool invalidates);
/* The capture that an event was recorded in; NULL: none, or it has ended. */
struct gf_capture *gf_capture_of_mark(const struct gf_mark *mark);
