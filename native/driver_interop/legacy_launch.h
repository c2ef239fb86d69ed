/* What a launch of CUDA 2 to 3 keeps with its function: the shape of its blocks and its parameters, set by
 * calls of their own. Used by the guest and by the simulated device. */
#pragma once
#include "driver_interop/cuda_driver.h"

#define GF_LEGACY_PARAMS 4096

struct gf_legacy_launch {
    unsigned block[3];
    unsigned shared;
    unsigned size; /* of the parameters */
    _Alignas(16) unsigned char params[GF_LEGACY_PARAMS];
};

CUresult gf_legacy_block(struct gf_legacy_launch *launch, int x, int y, int z);
CUresult gf_legacy_size(struct gf_legacy_launch *launch, unsigned bytes);
CUresult gf_legacy_param(struct gf_legacy_launch *launch, int offset, const void *value, unsigned size);
/* Through cuLaunchKernel, as this driver has it. */
typedef CUresult (*gf_launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, CUstream, void **, void **);
CUresult gf_legacy_launch(struct gf_legacy_launch *launch, CUfunction function, int width, int height,
                          CUstream stream, gf_launch_kernel kernel);
