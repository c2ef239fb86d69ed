/* A type with every kind of member, those included that no carried type of cuda.h has (codec_types.yaml). */
#pragma once
#include "driver_interop/cuda_driver.h"

typedef struct probe_inner {
    unsigned short value;
    CUstream stream;
} probe_inner;

typedef struct probe_everything {
    const char *name, *title;
    const void *bytes;
    unsigned byteCount;
    int devices[2];
    probe_inner *inners;
    size_t innerCount;
    probe_inner *optional;
    CUstream *streams;
    size_t *sizes;
    int streamCount;
    CUdeviceptr address;
    probe_inner *last;
} probe_everything;
