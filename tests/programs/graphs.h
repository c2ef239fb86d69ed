// What nodes of graphs are made of, for the programs that use them.
#ifndef GRAPHS_H
#define GRAPHS_H

#include "driver.h"

// A launch of `blocks` times `threads`, in one dimension.
static inline CUDA_KERNEL_NODE_PARAMS launch_of(CUfunction function, unsigned blocks, unsigned threads,
                                                void **arguments) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = function,
                                     .gridDimX = blocks,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = threads,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = arguments};
}

// Copies of `size` bytes in a row.
static inline CUDA_MEMCPY3D copy_to_device(CUdeviceptr to, const void *from, size_t size) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = size,
                           .Height = 1,
                           .Depth = 1};
}

static inline CUDA_MEMCPY3D copy_to_host(void *to, CUdeviceptr from, size_t size) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = to,
                           .WidthInBytes = size,
                           .Height = 1,
                           .Depth = 1};
}

static inline CUDA_MEMCPY3D copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t size) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = size,
                           .Height = 1,
                           .Depth = 1};
}

#endif
