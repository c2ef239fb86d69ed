// What every driver-API program starts with: device 0, its primary context, and the kernels of kernels.cu.
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda.h>
#include <stdbool.h>

#include "check.h"
#include "kernels_ptx.h"

static CUdevice device;
static CUcontext context;
static CUmodule module;

static inline void start(void) {
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, kernels_ptx));
}

static inline CUfunction kernel(const char *name) {
    CUfunction function = NULL;
    QUIET(cuModuleGetFunction(&function, module, name));
    return function;
}

static inline CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    QUIET(cuMemAlloc(&address, bytes));
    return address;
}

// A copy from pageable memory may wait for what stands before it in its stream: CUDA leaves that open, and
// the simulated device does so where it varies what is.
static inline bool pageable_copies_may_wait(void) {
    return getenv("GPUFERRY_SIM_VARIANCE") != NULL;
}

// A one-dimensional launch; the arguments' addresses follow.
#define LAUNCH(function, blocks, threads, stream, ...)                                                       \
    cuLaunchKernel((function), (blocks), 1, 1, (threads), 1, 1, 0, (stream), (void *[]){__VA_ARGS__}, NULL)

// Kernels still run, and what they do is seen.
static inline void expect_it_still_works(void) {
    CUdeviceptr word = allocate(4);
    unsigned value = 0;
    OK(cuMemsetD32(word, 4, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &word));
    OK(cuMemcpyDtoH(&value, word, 4));
    EXPECT(value == 5);
}

#endif
