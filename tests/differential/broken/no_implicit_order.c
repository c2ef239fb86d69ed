// A driver in which no stream is ordered with the legacy default stream.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    CUresult (*create)(CUstream *, unsigned) = dlsym(RTLD_NEXT, "cuStreamCreate");
    return create(stream, flags == CU_STREAM_DEFAULT ? CU_STREAM_NON_BLOCKING : flags);
}
