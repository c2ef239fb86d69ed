/* Captures and the streams in them, for the calls that begin, end and describe one. All with the graphs' lock
 * held. */
#pragma once
#include "capture.h"
#include "graph.h"

/* A stream's part. */
struct sim_captured {
    struct sim_capture *capture;
    struct sim_stream *stream;     /* with a reference */
    struct sim_links dependencies; /* of the next node */
    struct sim_node *last;         /* that the stream itself was given; NULL: none */
    CUgraphNode *nodes;            /* the same for cuStreamGetCaptureInfo */
    CUgraphEdgeData *edges;
    struct sim_captured *next; /* of the capture */
};

struct sim_capture {
    uint64_t id;
    struct sim_graph *graph; /* NULL: it has ended, and the capture is invalid */
    bool invalid;
    CUstreamCaptureMode mode;
    uint64_t thread;
    struct sim_stream *origin;
    struct sim_captured *streams;
    struct sim_capture *next;
};

uint64_t sim_capture_thread(void);
/* Of the calling thread. */
CUstreamCaptureMode sim_capture_exchange_mode(CUstreamCaptureMode mode);
/* The capture of that id that goes on; NULL: it has ended. */
struct sim_capture *sim_capture_of(uint64_t id);
/* A new capture in which there is the stream, behind the links, which it takes over. */
CUresult sim_capture_begin(struct sim_stream *stream, struct sim_graph *graph, CUstreamCaptureMode mode,
                           struct sim_links *links);
/* All its streams leave it; the graph stays. */
void sim_capture_end(struct sim_capture *capture);
/* The same of one that has failed: its graph ends with it, also one that was there before. */
void sim_capture_abandon(struct sim_capture *capture);
/* Whether all work of other streams is waited for by the origin. */
bool sim_capture_joined(struct sim_capture *capture);
struct sim_captured *sim_captured_of(const struct sim_stream *stream);
