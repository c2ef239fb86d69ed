#include <stdbool.h>

#include "array.h"
#include "functions.h"

#define DRIVER(name)            gf_##name
#define ENTER                   (void)0
#define TEXEL(format, channels) gf_texel_size(format, channels)
#define SETTLE(stream)          CUDA_SUCCESS /* what is copied in has been read when a call returns */

#include "driver_interop/batch.c.h"
