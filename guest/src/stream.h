#pragma once
#include "guest.h"

/* What the wire calls a stream: 0 for the legacy default stream; a per-thread default stream is a stream of
 * its own, made when a thread first uses it. */
CUresult gf_wire_stream(CUstream stream, uint64_t *wire);
void gf_stream_thread_end(struct gf_thread *thread);
