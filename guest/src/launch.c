#include "launch.h"

#include <string.h>

#include "capture.h"
#include "channel.h"
#include "context.h"
#include "driver_interop/launch_attribute.h"
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

/* All blocks of a cooperative launch must be on the device together. */
static CUresult check_cooperative(const CUlaunchConfig *c, CUfunction function,
                                  const struct gf_stream *stream) {
    unsigned threads = c->blockDimX * c->blockDimY * c->blockDimZ;
    int blocks;
    CUresult result = gf_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, function, (int)threads, c->sharedMemBytes, CU_OCCUPANCY_DEFAULT);
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

static CUresult launch_here(const CUlaunchConfig *config, CUfunction function,
                            const struct gf_callable *callable, const struct gf_stream *stream, uint64_t wire,
                            void **kernelParams, void **extra, const struct gf_launch_attribute *attributes,
                            uint32_t attribute_count) {
    const struct gf_kernel_info *info = callable->info;
    struct gf_req_sessionLaunch request = {
        .function = (uint64_t)function,
        .stream = wire,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared = config->sharedMemBytes,
        .attributes = attribute_count,
        .params = info->param_bytes,
    };
    CUresult result = gf_launch_check(config, callable);
    if (result == CUDA_SUCCESS && gf_launch_lacks_cluster(config, callable)) {
        result = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    if (result == CUDA_SUCCESS && gf_launch_is_cooperative(config)) {
        result = check_cooperative(config, function, stream);
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
    gf_callable_is_loaded(callable);
    return result != CUDA_SUCCESS ? result : send_launch(&request, packed, attributes);
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **kernelParams, void **extra,
                       const struct gf_launch_attribute *attributes, uint32_t attribute_count) {
    const struct gf_callable *callable = gf_callable_find((uint64_t)function);
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct gf_stream *stream;
    uint64_t wire;
    CUresult result = gf_stream_look_up(config->hStream, &stream, &wire);
    uint64_t context =
        result == CUDA_SUCCESS && stream != NULL ? stream->object.owner : gf_context_current_handle();
    if (result == CUDA_SUCCESS && callable->context != 0 && callable->context != context) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* A kernel of a library is launched in the stream's context. */
    const struct gf_lent before = gf_context_lend(context);
    result = launch_here(config, function, callable, stream, wire, kernelParams, extra, attributes,
                         attribute_count);
    gf_context_return(before);
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

static CUresult check_event(const CUlaunchAttribute *attribute, const struct gf_stream *stream) {
    const struct gf_event *event = gf_event_find(attribute->value.programmaticEvent.event);
    if (attribute->value.programmaticEvent.flags != CU_EVENT_RECORD_DEFAULT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (event == NULL ||
        event->object.owner != (stream != NULL ? stream->object.owner : gf_context_current_handle())) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unsigned wanted = event->flags & (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    return wanted == CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch_with(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    struct gf_launch_attribute attributes[GF_LAUNCH_ATTRIBUTES_MAX];
    uint32_t count;
    struct gf_stream *stream;
    uint64_t wire;
    CUresult result = gf_stream_look_up(config->hStream, &stream, &wire);
    if (result == CUDA_SUCCESS && gf_callable_find((uint64_t)f) == NULL) {
        result = CUDA_ERROR_INVALID_HANDLE; /* before what the program wrote beside them is read */
    }
    result = result == CUDA_SUCCESS ? gf_launch_attributes(config, attributes, &count) : result;
    for (unsigned i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++) {
        result =
            gf_attribute_records(config->attrs[i].id) ? check_event(&config->attrs[i], stream) : CUDA_SUCCESS;
    }
    result = result == CUDA_SUCCESS ? launch(config, f, kernelParams, extra, attributes, count) : result;
    for (unsigned i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++) { /* later than they might be */
        CUevent event = config->attrs[i].value.programmaticEvent.event;
        if (gf_attribute_records(config->attrs[i].id)) {
            result = gf_cuEventRecord(event, config->hStream);
            gf_capture_set_edge(event, gf_attribute_edge(&config->attrs[i]));
        }
    }
    return result;
}

CUresult gf_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    return config == NULL ? CUDA_ERROR_INVALID_VALUE : launch_with(config, f, kernelParams, extra);
}

CUresult gf_cuLaunchCooperativeKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
                                      unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ,
                                      unsigned sharedMemBytes, CUstream hStream, void **kernelParams) {
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {gridDimX,  gridDimY,       gridDimZ, blockDimX,    blockDimY,
                             blockDimZ, sharedMemBytes, hStream,  &cooperative, 1};
    return launch_with(&config, f, kernelParams, NULL);
}

/* Of different devices each, and alike in all but stream and parameters. */
static CUresult check_devices(const CUDA_LAUNCH_PARAMS *list, unsigned count) {
    uint64_t devices = 0;
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *a = &list[0], *b = &list[i];
        const struct gf_stream *stream = gf_stream_find(b->hStream);
        if (memcmp(&a->gridDimX, &b->gridDimX, 7 * sizeof a->gridDimX) != 0) { /* up to sharedMemBytes */
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (stream == NULL) { /* also NULL */
            return CUDA_ERROR_INVALID_HANDLE;
        }
        uint64_t device = UINT64_C(1) << gf_context_device(stream->object.owner);
        if ((devices & device) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        devices |= device;
    }
    return CUDA_SUCCESS;
}

CUresult gf_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned numDevices,
                                                 unsigned flags) {
    unsigned known = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                     CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
    if (launchParamsList == NULL || numDevices == 0 || numDevices > (unsigned)gf_session.device_count ||
        (flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_devices(launchParamsList, numDevices);
    for (unsigned i = 0; i < numDevices && result == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *l = &launchParamsList[i];
        result = gf_cuLaunchCooperativeKernel(l->function, l->gridDimX, l->gridDimY, l->gridDimZ,
                                              l->blockDimX, l->blockDimY, l->blockDimZ, l->sharedMemBytes,
                                              l->hStream, l->kernelParams);
    }
    return result;
}
