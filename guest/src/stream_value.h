/* Operations on words of memory that streams wait for and write. */
#pragma once
#include "driver_interop/cuda_driver.h"

#define GF_BATCH_MAX 256u

/* What CUDA refuses of one, before it is in a stream or a graph. */
CUresult gf_stream_value_check(const CUstreamBatchMemOpParams *operation);
