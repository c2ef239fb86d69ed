/* What is known of streams without asking the server. */
#pragma once
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

/* All work of a stream was done when the last of `requests` was answered; `before`: gf_channel_frames()
 * before the first of them. */
void gf_stream_waited(CUstream stream, uint64_t before, uint64_t requests);
