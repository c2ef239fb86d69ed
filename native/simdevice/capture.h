/* Stream capture: what a stream is given becomes nodes of a graph. Whoever uses streams asks here, and knows
 * nothing of graphs. None of these is called with the graphs' lock held. */
#pragma once
#include "handle.h"

struct sim_op;
struct sim_stream;
struct sim_graph;
struct sim_context;
struct sim_links;
struct sim_green;

/* Whether anything is captured, in whichever stream. */
bool sim_capture_any(void);
/* Whether the stream is part of a capture. */
bool sim_stream_captured(const struct sim_stream *stream);

/* What every operation meets on its way into a stream. True: it must not be queued: it became a node, or
 * *result says why that is illegal. */
bool sim_capture_takes(struct sim_stream *stream, const struct sim_op *op, CUresult *result);
/* The same for what has no operation of its own; an allocation's address is written to the parameters. */
bool sim_capture_takes_params(struct sim_stream *stream, CUgraphNodeParams *params, CUresult *result);

/* Before the host waits for a stream or asks about it: success, or the error, which ends the captures that it
 * is about. */
CUresult sim_capture_check_stream(struct sim_stream *stream);
CUresult sim_capture_check_context(struct sim_context *context, const struct sim_green *green);
/* Before a call that CUDA calls potentially unsafe: the modes of the captures, and of the thread, decide. */
CUresult sim_capture_check_unsafe(void);
/* Only that the legacy stream is not asked about while a stream that it waits for is captured. */
CUresult sim_capture_check_implicit(const struct sim_stream *stream);

/* An event's place in a capture. */
struct sim_capture_mark {
    uint64_t id; /* of the capture; 0: it was recorded in none */
    uint64_t *nodes;
    CUgraphEdgeData *edges;
    size_t count;
};
/* If the stream is captured: true, and the mark is the stream's place now, or *result an error. */
bool sim_capture_record(struct sim_stream *stream, struct sim_capture_mark *mark, CUresult *result);
/* If the stream or the mark is part of a capture: true, and the stream waits for the mark, or *result is an
 * error. */
bool sim_capture_wait(struct sim_stream *stream, const struct sim_capture_mark *mark, CUresult *result);
/* The edge by which kernels wait for the mark, which is a kernel's place. */
void sim_capture_set_edge(struct sim_capture_mark *mark, CUgraphEdgeData edge);
/* The event is recorded anew, outside of captures. */
void sim_capture_mark_clear(struct sim_capture_mark *mark);
/* The same with the lock of graphs, or where nobody else has the event any more. */
void sim_capture_mark_drop(struct sim_capture_mark *mark);
/* An event with such a mark was asked about: that ends its capture. */
void sim_capture_asked(const struct sim_capture_mark *mark);

/* The stream ends, or the context with all its streams. */
void sim_capture_forget(struct sim_stream *stream);
void sim_capture_forget_context(struct sim_context *context);

/* What the functions above do while there is a capture (capture.c); in effect from the first one's beginning
 * to the last one's end. */
struct sim_capture_rules {
    bool (*takes)(struct sim_stream *stream, const struct sim_op *op, CUresult *result);
    bool (*takes_params)(struct sim_stream *stream, CUgraphNodeParams *params, CUresult *result);
    CUresult (*check_stream)(struct sim_stream *stream);
    CUresult (*check_context)(struct sim_context *context, const struct sim_green *green);
    CUresult (*check_unsafe)(void);
    CUresult (*check_implicit)(const struct sim_stream *stream);
    bool (*record)(struct sim_stream *stream, struct sim_capture_mark *mark, CUresult *result);
    void (*set_edge)(struct sim_capture_mark *mark, CUgraphEdgeData edge);
    bool (*wait)(struct sim_stream *stream, const struct sim_capture_mark *mark, CUresult *result);
    void (*asked)(const struct sim_capture_mark *mark);
    void (*forget)(struct sim_stream *stream);
    void (*forget_context)(struct sim_context *context);
};
void sim_capture_put_in_effect(const struct sim_capture_rules *rules); /* NULL: there is no capture */
