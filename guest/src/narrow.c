/* Interfaces of 32 bits (cuMemAlloc and others as CUDA 2 had them). */
#include "calls.h"
#include "functions.h"

#define DRIVER(name) gf_##name
#define ENTER        (void)0

#include "driver_interop/narrow.c.h"

CUresult gf_cuMemcpy2D(const CUDA_MEMCPY2D_v1 *pCopy) {
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY2D copy = widen_2d(pCopy);
    return gf_copy_plane(&copy, NULL, false);
}

CUresult gf_cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream) {
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY2D copy = widen_2d(pCopy);
    return gf_copy_plane(&copy, hStream, true);
}

CUresult gf_cuMemcpy3D(const CUDA_MEMCPY3D_v1 *pCopy) {
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D copy = widen_3d(pCopy);
    return gf_copy_volume(&copy, NULL, false);
}

CUresult gf_cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream) {
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D copy = widen_3d(pCopy);
    return gf_copy_volume(&copy, hStream, true);
}
