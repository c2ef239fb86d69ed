#include "launch.h"

#include <string.h>

#include "capture.h"
#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "green.h"
#include "host_memory.h"
#include "module.h"
#include "objects.h"
#include "stream.h"
#include "window.h"

#define PARAMS_ON_STACK                                                                                      \
    4096 /* what CUDA allowed before 12.1; up to 32764 since, which needs a copy of its own */
/* How many blocks of this shape a multiprocessor holds: asked for once, while the shape stays the same. */
static CUresult resident_blocks(const CUlaunchConfig *c, CUfunction function, struct gf_callable *callable,
                                uint64_t threads, unsigned *blocks) {
    uint64_t shape = threads << 40 | (uint64_t)c->sharedMemBytes << 8;
    uint64_t known = atomic_load(&callable->resident);
    if (known >> 8 != shape >> 8) {
        int found;
        CUresult result = gf_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &found, function, (int)threads, c->sharedMemBytes, CU_OCCUPANCY_DEFAULT);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        known = shape | (uint8_t)found;
        atomic_store(&callable->resident, known);
    }
    *blocks = (uint8_t)known;
    return CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must be on the device together. */
static CUresult check_cooperative(const CUlaunchConfig *c, CUfunction function, struct gf_callable *callable,
                                  const struct gf_stream *stream) {
    uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
    unsigned blocks;
    CUresult result = resident_blocks(c, function, callable, threads, &blocks);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t most = (uint64_t)blocks * gf_green_multiprocessors(stream);
    uint64_t grid = (uint64_t)c->gridDimX * c->gridDimY; /* below 2^47 */
    return grid > most || grid * c->gridDimZ > most ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

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
    bool cooperative = gf_launch_is_cooperative(config);
    struct gf_stream *stream;
    CUresult result = gf_stream_look_up(config->hStream, &stream, &request.stream);
    uint64_t context =
        result == CUDA_SUCCESS && stream != NULL ? stream->object.owner : gf_context_current_handle();
    if (result == CUDA_SUCCESS && callable->context != 0 && callable->context != context) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    result = result == CUDA_SUCCESS ? gf_launch_check(config, callable) : result;
    if (result == CUDA_SUCCESS && gf_launch_lacks_cluster(config, callable)) {
        result = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    if (result == CUDA_SUCCESS && cooperative) {
        result = check_cooperative(config, function, callable, stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    char packed[info->param_bytes <= PARAMS_ON_STACK ? PARAMS_ON_STACK : PARAMS_MAX];
    result = gf_launch_pack(info, kernelParams, extra, packed);
    if (result != CUDA_SUCCESS) {
        return result; /* and a capture goes on */
    }
    if (gf_capture_any() && gf_capture_takes_launch(config, function, kernelParams, extra, &result)) {
        return result;
    }
    result = gf_host_share_params(packed, info->param_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* A kernel of a library is launched in the stream's context. */
    uint32_t current = gf_thread.context_id;
    if (context != gf_context_current_handle()) {
        gf_thread.context_id = gf_handle_slot(context) + 1;
    }
    result = send_launch(&request, packed, attributes);
    gf_thread.context_id = current;
    bool waits = result == CUDA_SUCCESS && gf_session.launch_blocking;
    return waits ? gf_cuStreamSynchronize(config->hStream) : result;
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
    uint64_t stream;
    CUresult result = gf_wire_stream(config->hStream, &stream);
    if (result == CUDA_SUCCESS && gf_callable_find((uint64_t)f) == NULL) {
        result = CUDA_ERROR_INVALID_HANDLE; /* before what the program wrote beside them is read */
    }
    result = result == CUDA_SUCCESS ? gf_launch_attributes(config, attributes, &count) : result;
    return result != CUDA_SUCCESS ? result : launch(config, f, kernelParams, extra, attributes, count);
}

CUresult gf_cuLaunchCooperativeKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
                                      unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ,
                                      unsigned sharedMemBytes, CUstream hStream, void **kernelParams) {
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {gridDimX,  gridDimY,       gridDimZ, blockDimX,    blockDimY,
                             blockDimZ, sharedMemBytes, hStream,  &cooperative, 1};
    return gf_cuLaunchKernelEx(&config, f, kernelParams, NULL);
}

/* A launch for each of the devices, of which the program has one. */
CUresult gf_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned numDevices,
                                                 unsigned flags) {
    const CUDA_LAUNCH_PARAMS *l = launchParamsList;
    unsigned known = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                     CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
    if (l == NULL || numDevices != 1 || (flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (gf_stream_find(l->hStream) == NULL) { /* also NULL */
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return gf_cuLaunchCooperativeKernel(l->function, l->gridDimX, l->gridDimY, l->gridDimZ, l->blockDimX,
                                        l->blockDimY, l->blockDimZ, l->sharedMemBytes, l->hStream,
                                        l->kernelParams);
}
