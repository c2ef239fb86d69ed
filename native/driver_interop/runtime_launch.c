#include "driver_interop/runtime_launch.h"

#include <stdbool.h>

#include "driver_interop/interop.h"

#define INVALID_CONFIGURATION ((CUresult)9) /* cudaErrorInvalidConfiguration */

static _Thread_local int runtime_asks;

static bool beyond(CUdevice device, CUdevice_attribute attribute, unsigned long long value) {
    int most = 0;
    return cuDeviceGetAttribute(&most, attribute, device) == CUDA_SUCCESS &&
           (value == 0 || value > (unsigned long long)most);
}

/* The device's limits alone: a kernel's own are CUDA_ERROR_INVALID_VALUE to everybody. */
static CUresult judge(CUresult result, const unsigned grid[3], const unsigned block[3]) {
    CUdevice device;
    if (result != CUDA_ERROR_INVALID_VALUE || cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return result;
    }
    for (int i = 0; i < 3; i++) {
        if (beyond(device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i), grid[i]) ||
            beyond(device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i), block[i])) {
            return INVALID_CONFIGURATION;
        }
    }
    return beyond(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                  (unsigned long long)block[0] * block[1] * block[2])
               ? INVALID_CONFIGURATION
               : result;
}

/* One for each default stream. */
#define LAUNCHES(twin)                                                                                       \
    static CUresult launch##twin(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,           \
                                 unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,  \
                                 void **extra) {                                                             \
        return judge(cuLaunchKernel##twin(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra),         \
                     (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz});                                    \
    }                                                                                                        \
    static CUresult launch_ex##twin(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {    \
        CUresult result = cuLaunchKernelEx##twin(c, f, params, extra);                                       \
        return c == NULL ? result                                                                            \
                         : judge(result, (unsigned[]){c->gridDimX, c->gridDimY, c->gridDimZ},                \
                                 (unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ});                    \
    }                                                                                                        \
    static CUresult launch_cooperative##twin(CUfunction f, unsigned gx, unsigned gy, unsigned gz,            \
                                             unsigned bx, unsigned by, unsigned bz, unsigned shared,         \
                                             CUstream stream, void **params) {                               \
        return judge(cuLaunchCooperativeKernel##twin(f, gx, gy, gz, bx, by, bz, shared, stream, params),     \
                     (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz});                                    \
    }

LAUNCHES()
LAUNCHES(_ptsz)

void gf_runtime_asks(int asks) {
    runtime_asks = asks;
}

void *gf_runtime_function(void *function) {
    const struct {
        void *plain, *runtime;
    } pairs[] = {
        {(void *)cuLaunchKernel, (void *)launch},
        {(void *)cuLaunchKernel_ptsz, (void *)launch_ptsz},
        {(void *)cuLaunchKernelEx, (void *)launch_ex},
        {(void *)cuLaunchKernelEx_ptsz, (void *)launch_ex_ptsz},
        {(void *)cuLaunchCooperativeKernel, (void *)launch_cooperative},
        {(void *)cuLaunchCooperativeKernel_ptsz, (void *)launch_cooperative_ptsz},
    };
    for (unsigned i = 0; runtime_asks && i < sizeof pairs / sizeof *pairs; i++) {
        if (pairs[i].plain == function) {
            return pairs[i].runtime;
        }
    }
    return function;
}
