/* What is known of streams without asking the server. */
#pragma once
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

/* All work of a stream was done when the last of `requests` was answered; `before`: gf_channel_frames()
 * before the first of them. */
void gf_stream_waited(CUstream stream, uint64_t before, uint64_t requests);

/* Of which context the stream or the event is that an operation asks about; 0: it asks about none. */
uint64_t gf_asked_context(uint16_t op, const void *request);
/* Whose failure it is that a call of this thread finds; 0: the current context's. */
extern _Thread_local uint64_t gf_asked;
