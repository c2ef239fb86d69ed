/* Streams by their handles: the program's own, the default ones, and each thread's. */
#pragma once
#include "guest.h"

/* What the wire calls a stream: 0 for the legacy default stream; a per-thread default stream is a stream of
 * its own, made when a thread first uses it. */
CUresult gf_wire_stream(CUstream stream, uint64_t *wire);

/* The same, of a stream whose context is there and sound; the legacy stream's is the current one. */
CUresult gf_usable_stream(CUstream stream, uint64_t *wire);
/* The stream, named as on the wire, for a copy in that is not there when its call returns: streams that do
 * not wait for the legacy one do not wait for the copy either. */
static inline uint64_t gf_wire_behind(uint64_t stream) {
    return stream == 0 ? (uint64_t)CU_STREAM_LEGACY : stream;
}
/* What is sent next is of the stream's own context, named as on the wire, whose failure it may tell. Comes
 * back: what gf_thread.context_id is to be again. */
uint32_t gf_stream_enter(uint64_t stream);
/* Until a stream, named as on the wire, has done what it was given. */
CUresult gf_wait_for_stream(uint64_t stream);
/* Until a context has done what it was given; how that fares. What failed before is told by the program's own
 * calls. */
CUresult gf_wait_for_context(uint64_t context);
/* Destroys the per-thread default streams of a thread that ends. */
void gf_stream_thread_end(struct gf_thread *thread);
