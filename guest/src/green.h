/* Green contexts, as other files ask about them. */
#pragma once
#include "guest.h"
#include "objects.h"

/* How many multiprocessors the work of a stream may use; NULL: the default stream of what is current. */
unsigned gf_green_multiprocessors(const struct gf_stream *stream);
/* The green context that a context's handle names, null being the current one; 0: it is an ordinary one. */
uint64_t gf_green_of(CUcontext handle);
/* Until a green context has done what it was given. */
CUresult gf_green_synchronize(uint64_t handle);
/* A new stream is one of that green context. */
CUresult gf_stream_turn_green(CUstream handle, uint64_t green);
