/* Stream capture: what a stream is given becomes nodes of a graph, here, without a word to the server. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "driver_interop/cuda_driver.h"
#include "graph.h"

struct gf_mark;
struct gf_stream;
struct gf_event;

/* How many captures go on, and how many events were last recorded in one: most programs never have any, and
 * pay this look. */
extern _Atomic unsigned gf_capture_count;

static inline bool gf_capture_any(void) {
    return __builtin_expect(atomic_load_explicit(&gf_capture_count, memory_order_relaxed) != 0, 0);
}

/* Whether a call became a node of its stream's graph, or must not be made, as *result says. */
bool gf_capture_takes(CUstream stream, enum gf_form form, const void *params, CUresult *result);
/* The same where the program is told what the node made. */
bool gf_capture_takes_telling(CUstream stream, enum gf_form form, void *params, CUresult *result);
bool gf_capture_takes_launch(const CUlaunchConfig *config, CUfunction function, void **kernel_params,
                             void **extra, CUresult *result);
/* The same for events, which are no nodes: they are places in the graph. */
bool gf_capture_takes_record(CUevent event, CUstream stream, unsigned flags, CUresult *result);
/* The edge by which kernels wait for an event that was recorded in a capture, behind a kernel. */
void gf_capture_set_edge(CUevent event, CUgraphEdgeData edge);
bool gf_capture_takes_wait(CUstream stream, CUevent event, unsigned flags, CUresult *result);

/* What CUDA refuses while something is captured, and which captures end by it (`capture` in the spec). */
CUresult gf_capture_unsafe(void);
CUresult gf_capture_copy(CUstream stream);
CUresult gf_capture_stream(CUstream stream);
CUresult gf_capture_launch(CUstream stream); /* of a graph */
CUresult gf_capture_context(void);
/* The same for a context that need not be current; green: for the streams of that green context alone. */
CUresult gf_capture_context_of(uint64_t context, uint64_t green);
CUresult gf_capture_event(CUevent event);
/* An event is recorded anew, outside of captures. */
void gf_capture_release(struct gf_event *event);
/* A stream has ended: it leaves its capture, which then fails. */
void gf_capture_forget(struct gf_stream *stream);

struct gf_event;
/* Sends a record of an event, or a wait for it. Of one of several processes it is there when this returns:
 * they are to know of the record, and what they record from here on is not waited for. */
CUresult gf_event_send(struct gf_event *event, uint16_t op, void *request, size_t size);
