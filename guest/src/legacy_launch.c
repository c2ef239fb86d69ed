/* Launches of CUDA 2 to 3: the function keeps what later ones are told with each launch. */
#include "driver_interop/legacy_launch.h"

#include <stdlib.h>

#include "functions.h"
#include "module.h"
#include "objects.h"

/* What the function keeps, from its first such call until it ends. */
static struct gf_legacy_launch *legacy(CUfunction handle, CUresult *error) {
    struct gf_callable *function = gf_function_find(handle);
    if (function == NULL) {
        *error = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    struct gf_legacy_launch *kept = atomic_load(&function->legacy), *made;
    if (kept == NULL && (made = calloc(1, sizeof *made)) != NULL) {
        if (atomic_compare_exchange_strong(&function->legacy, &kept, made)) {
            return made;
        }
        free(made);
    }
    *error = CUDA_ERROR_OUT_OF_MEMORY;
    return kept;
}

void gf_function_ended(struct gf_object *object) {
    free(atomic_exchange(&((struct gf_callable *)object)->legacy, NULL));
}

CUresult gf_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
    CUresult error;
    struct gf_legacy_launch *launch = legacy(hfunc, &error);
    return launch == NULL ? error : gf_legacy_block(launch, x, y, z);
}

CUresult gf_cuFuncSetSharedSize(CUfunction hfunc, unsigned bytes) {
    CUresult error;
    struct gf_legacy_launch *launch = legacy(hfunc, &error);
    if (launch == NULL) {
        return error;
    }
    launch->shared = bytes;
    return CUDA_SUCCESS;
}

CUresult gf_cuParamSetSize(CUfunction hfunc, unsigned numbytes) {
    CUresult error;
    struct gf_legacy_launch *launch = legacy(hfunc, &error);
    return launch == NULL ? error : gf_legacy_size(launch, numbytes);
}

CUresult gf_cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned numbytes) {
    CUresult error;
    struct gf_legacy_launch *launch = legacy(hfunc, &error);
    return launch == NULL ? error : gf_legacy_param(launch, offset, ptr, numbytes);
}

CUresult gf_cuParamSeti(CUfunction hfunc, int offset, unsigned value) {
    return gf_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult gf_cuParamSetf(CUfunction hfunc, int offset, float value) {
    return gf_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult gf_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
    CUresult error;
    struct gf_legacy_launch *launch = legacy(f, &error);
    return launch == NULL ? error
                          : gf_legacy_launch(launch, f, grid_width, grid_height, hStream, gf_cuLaunchKernel);
}
