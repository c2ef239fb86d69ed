/* What the driver keeps per host thread: the stack of current contexts and the per-thread default streams. */
#pragma once
#include "context.h"

struct sim_context *sim_thread_current(void); /* NULL: none; of a green context: the primary one */
struct sim_context *sim_thread_top(void);     /* what was made current */
struct sim_green *sim_thread_green(void);     /* NULL: what is current is no green context */
bool sim_thread_push(struct sim_context *context);
struct sim_context *sim_thread_pop(void);
bool sim_thread_set_current(struct sim_context *context); /* NULL pops */
/* The thread's default stream in that context, the current one; NULL: it has none yet. */
struct sim_stream *sim_thread_stream(const struct sim_context *context);
/* From now on it is that, until the thread ends; false when memory is exhausted. */
bool sim_thread_keep_stream(struct sim_stream *stream);
