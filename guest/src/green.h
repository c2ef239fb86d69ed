/* Green contexts, as other files ask about them. */
#pragma once
#include "guest.h"
#include "objects.h"

/* How many multiprocessors the work of a stream may use; NULL: the default stream of what is current. */
unsigned gf_green_multiprocessors(const struct gf_stream *stream);
/* A new stream is one of that green context. */
CUresult gf_stream_turn_green(CUstream handle, uint64_t green);
