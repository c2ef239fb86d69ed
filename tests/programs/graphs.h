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

#endif
