/* Launches of CUDA 2 to 3: the function keeps what later ones are told with each launch. */
#include "driver_interop/legacy_launch.h"
#include "module.h"
#include <stdlib.h>

/* What the function keeps, from its first such call until it ends; `function` is the caller's to release. */
static CUresult legacy(CUfunction handle, struct sim_function **function, struct gf_legacy_launch **launch) {
    SIM_TRY(sim_function_acquire(handle, function));
    struct gf_legacy_launch *kept = atomic_load(&(*function)->legacy), *made;
    if (!kept && (made = calloc(1, sizeof *made))) {
        if (atomic_compare_exchange_strong(&(*function)->legacy, &kept, made))
            kept = made;
        else
            free(made);
    }
    *launch = kept;
    if (!kept)
        sim_release(*function);
    return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
    struct sim_function *function;
    struct gf_legacy_launch *launch;
    SIM_TRY(legacy(handle, &function, &launch));
    CUresult result = gf_legacy_block(launch, x, y, z);
    sim_release(function);
    return result;
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) {
    struct sim_function *function;
    struct gf_legacy_launch *launch;
    SIM_TRY(legacy(handle, &function, &launch));
    launch->shared = bytes;
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction handle, unsigned int bytes) {
    struct sim_function *function;
    struct gf_legacy_launch *launch;
    SIM_TRY(legacy(handle, &function, &launch));
    CUresult result = gf_legacy_size(launch, bytes);
    sim_release(function);
    return result;
}

CUresult cuParamSetv(CUfunction handle, int offset, void *value, unsigned int size) {
    struct sim_function *function;
    struct gf_legacy_launch *launch;
    SIM_TRY(legacy(handle, &function, &launch));
    CUresult result = gf_legacy_param(launch, offset, value, size);
    sim_release(function);
    return result;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
    struct sim_function *function;
    struct gf_legacy_launch *launch;
    SIM_TRY(legacy(handle, &function, &launch));
    CUresult result = gf_legacy_launch(launch, handle, width, height, stream, cuLaunchKernel);
    sim_release(function);
    return result;
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, NULL);
}

CUresult cuLaunch(CUfunction function) {
    return cuLaunchGrid(function, 1, 1);
}
