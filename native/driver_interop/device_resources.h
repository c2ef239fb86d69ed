/* What descriptors of a device's resources stand for (device_resource.c.h). */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "cuda_driver.h"

#define GF_MOST_MULTIPROCESSORS 512

struct gf_multiprocessors {
    uint64_t bits[GF_MOST_MULTIPROCESSORS / 64];
};

/* What a CUdevResourceDesc names. It is never freed: CUDA says that it stays valid. */
struct gf_resources {
    CUdevice device;
    struct gf_multiprocessors which;
    unsigned alignment;
    CUdevResource queue; /* of type CU_DEV_RESOURCE_TYPE_INVALID: none was given */
    struct gf_resources *next;
};
