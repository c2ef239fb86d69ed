#include "calls.h"
#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "launch.h"
#include "module.h"
#include "stream.h"

/* Walks the block sizes from large to small as the documented algorithm does: most resident threads, larger
 * blocks first. */
CUresult gf_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                      CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                      size_t dynamicSMemSize, int blockSizeLimit,
                                                      unsigned flags) {
    struct gf_callable *callable = gf_callable_find((uint64_t)func);
    const int32_t *device = gf_device_here()->attributes;
    if (minGridSize == NULL || blockSize == NULL || blockSizeLimit < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
    int most_threads = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
    int limit = gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    limit = blockSizeLimit > 0 && blockSizeLimit < limit ? blockSizeLimit : limit;
    int best_threads = 0, best_size = 0, best_blocks = 0;
    for (int rounded = (limit + warp - 1) / warp * warp; rounded > 0; rounded -= warp) {
        int size = rounded < limit ? rounded : limit, blocks;
        size_t shared =
            blockSizeToDynamicSMemSize != NULL ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
        CUresult result =
            gf_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, size, shared, flags);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (size * blocks > best_threads) {
            best_threads = size * blocks;
            best_size = size;
            best_blocks = blocks;
        }
        if (best_threads == most_threads) {
            break;
        }
    }
    *blockSize = best_size;
    *minGridSize = best_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    return CUDA_SUCCESS;
}

CUresult gf_occupancy_clusters(int *result, CUfunction func, const CUlaunchConfig *config,
                               bool largest_size) {
    struct gf_launch_attribute attributes[GF_LAUNCH_ATTRIBUTES_MAX];
    struct gf_req_sessionOccupancyClusters request;
    struct gf_rep_sessionOccupancyClusters reply;
    request = (struct gf_req_sessionOccupancyClusters){
        .function = (uint64_t)func,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared = config->sharedMemBytes,
        .largest_size = largest_size,
    };
    uint32_t count;
    CUresult status = gf_wire_stream(config->hStream, &request.stream);
    if (status == CUDA_SUCCESS && gf_callable_find((uint64_t)func) == NULL) {
        status = CUDA_ERROR_INVALID_HANDLE;
    }
    status = status == CUDA_SUCCESS ? gf_launch_attributes(config, attributes, &count) : status;
    if (status != CUDA_SUCCESS) {
        return status;
    }
    request.attributes = count;
    struct gf_call call = {.op = GF_OP_sessionOccupancyClusters, .reply = &reply, .reply_size = sizeof reply};
    struct iovec parts[] = {{&request, sizeof request}, {attributes, count * sizeof *attributes}};
    status = gf_call_start(&call, parts, 2);
    CUresult waited = gf_call_wait(&call);
    free(call.payload);
    status = status != CUDA_SUCCESS ? status : waited;
    if (status == CUDA_SUCCESS) {
        *result = reply.result;
    }
    return status;
}
