#include "array.h"

static unsigned texel(CUarray_format format, unsigned channels) {
    struct sim_texel found;
    return sim_texel_of(format, channels, &found) ? (unsigned)found.bytes * found.channels : 0;
}

/* What a captured stream has to read is read when its graph runs. */
static CUresult settle(CUstream stream) {
    CUstreamCaptureStatus status;
    SIM_TRY(cuStreamIsCapturing(stream, &status));
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

#define DRIVER(name)            name
#define TEXEL(format, channels) texel(format, channels)
#define SETTLE(stream)          settle(stream)
#define ENTER                                                                                                \
    do {                                                                                                     \
        struct sim_context *context_;                                                                        \
        SIM_TRY(sim_context_current(&context_));                                                             \
    } while (0)

#include "driver_interop/batch.c.h"
