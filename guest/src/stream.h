#pragma once
#include "guest.h"
#include "handles.h"

/* What the wire calls a stream: 0 for the legacy default stream; a per-thread default stream is a stream of
 * its own, made when a thread first uses it. */
CUresult gf_wire_stream(CUstream stream, uint64_t *wire);
void gf_stream_end_context(uint64_t context);
void gf_stream_thread_end(struct gf_thread *thread);
