/* Streams as the API sees them; their queues are the scheduler's. */
#pragma once
#include "context.h"

/* NULL when memory is exhausted. A stream made by cuStreamCreate ends with its context, the default ones do
 * not. */
struct sim_stream *sim_stream_new(struct sim_context *context, enum sim_stream_type type, unsigned flags,
                                  int priority);
/* A stream of the program's, in a green context unless that is NULL; a priority out of range is brought into
 * it. */
CUresult sim_stream_create(CUstream *out, struct sim_context *context, struct sim_green *green,
                           unsigned flags, int priority);
/* The usable stream of a handle (the default streams are the current context's), with a reference for the
 * caller. */
CUresult sim_stream_acquire(CUstream handle, struct sim_stream **stream);
