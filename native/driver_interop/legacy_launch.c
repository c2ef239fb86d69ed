#include "driver_interop/legacy_launch.h"

#include <string.h>

CUresult gf_legacy_block(struct gf_legacy_launch *launch, int x, int y, int z) {
    if (x <= 0 || y <= 0 || z <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    launch->block[0] = (unsigned)x;
    launch->block[1] = (unsigned)y;
    launch->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult gf_legacy_size(struct gf_legacy_launch *launch, unsigned bytes) {
    if (bytes > GF_LEGACY_PARAMS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    launch->size = bytes;
    return CUDA_SUCCESS;
}

CUresult gf_legacy_param(struct gf_legacy_launch *launch, int offset, const void *value, unsigned size) {
    if (value == NULL || offset < 0 || offset > GF_LEGACY_PARAMS ||
        size > GF_LEGACY_PARAMS - (unsigned)offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(launch->params + offset, value, size);
    return CUDA_SUCCESS;
}

CUresult gf_legacy_launch(struct gf_legacy_launch *launch, CUfunction function, int width, int height,
                          CUstream stream, gf_launch_kernel kernel) {
    size_t size = launch->size;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    if (width <= 0 || height <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return kernel(function, (unsigned)width, (unsigned)height, 1, launch->block[0], launch->block[1],
                  launch->block[2], launch->shared, stream, NULL, extra);
}
