#include "array.h"

static unsigned texel(CUarray_format format, unsigned channels) {
    struct sim_texel found;
    return sim_texel_of(format, channels, &found) ? (unsigned)found.bytes * found.channels : 0;
}

#define DRIVER(name)            name
#define ENTER                   SIM_TRY(sim_enter())
#define TEXEL(format, channels) texel(format, channels)
#define SETTLE(stream)          cuStreamSynchronize(stream)

#include "driver_interop/batch.c.h"
