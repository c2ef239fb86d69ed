/* What the driver keeps per host thread: the stack of current contexts and the per-thread default streams. */
#pragma once
#include "context.h"

struct sim_context *sim_thread_current(void); /* NULL: none */
bool sim_thread_push(struct sim_context *context);
struct sim_context *sim_thread_pop(void);
bool sim_thread_set_current(struct sim_context *context); /* NULL pops */
/* The thread's default stream in that context, made on first use; NULL when memory is exhausted. */
struct sim_stream *sim_thread_stream(struct sim_context *context);
