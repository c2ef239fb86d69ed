/* Copies given as lists. What is copied in has been read when a call returns, unless it waits for a function
 * of the program (host_call.c), or is memory that the device shares: that is copied on the device. */
#include <stdbool.h>

#include "functions.h"
#include "host_call.h"
#include "shared.h"
#include "wire/texel.h"

#define DRIVER(name)            gf_##name
#define ENTER                   (void)0
#define TEXEL(format, channels) gf_texel_bytes(format, channels)
#define SETTLE(stream)                                                                                       \
    (gf_host_calls_pending() || gf_shared_at_work() ? gf_cuStreamSynchronize(stream) : CUDA_SUCCESS)

#include "driver_interop/batch.c.h"
