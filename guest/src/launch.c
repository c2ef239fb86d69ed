#include "launch.h"

#include <string.h>

#include "capture.h"
#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "module.h"
#include "stream.h"
#include "window.h"

#define PARAMS_ON_STACK                                                                                      \
    4096 /* what CUDA allowed before 12.1; up to 32764 since, which needs a copy of its own */

static CUresult send_launch(struct gf_req_sessionLaunch *request, const void *params,
                            const struct gf_launch_attribute *attributes) {
    struct iovec parts[] = {{request, sizeof *request},
                            {(void *)params, request->params},
                            {(void *)attributes, request->attributes * sizeof *attributes}};
    gf_window_work_enqueued();
    return gf_send(GF_OP_sessionLaunch, parts, 3);
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **kernelParams, void **extra,
                       const struct gf_launch_attribute *attributes, uint32_t attribute_count) {
    struct gf_callable *callable = gf_callable_find((uint64_t)function);
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct gf_kernel_info *info = callable->info;
    struct gf_req_sessionLaunch request = {
        .function = (uint64_t)function,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared = config->sharedMemBytes,
        .attributes = attribute_count,
        .params = info->param_bytes,
    };
    CUresult result = gf_wire_stream(config->hStream, &request.stream);
    result = result == CUDA_SUCCESS ? gf_launch_check(config, callable) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (gf_capture_any() && gf_capture_takes_launch(config, function, kernelParams, extra, &result)) {
        return result;
    }
    char packed[info->param_bytes <= PARAMS_ON_STACK ? PARAMS_ON_STACK : PARAMS_MAX];
    result = gf_launch_pack(info, kernelParams, extra, packed);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return send_launch(&request, packed, attributes);
}

CUresult gf_cuLaunchKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
                           unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ,
                           unsigned sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    CUlaunchConfig config = {gridDimX,  gridDimY,       gridDimZ, blockDimX, blockDimY,
                             blockDimZ, sharedMemBytes, hStream,  NULL,      0};
    return launch(&config, f, kernelParams, extra, NULL, 0);
}

CUresult gf_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    struct gf_launch_attribute attributes[GF_LAUNCH_ATTRIBUTES_MAX];
    uint32_t count;
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_launch_attributes(config, attributes, &count);
    return result != CUDA_SUCCESS ? result : launch(config, f, kernelParams, extra, attributes, count);
}
