// A kernel of a library has settings of its own on each device, whichever way they are set, and launches
// there go by them.
//
// suite: devices
#include "driver.h"

enum { SOME = 1000, WANTED = 60 << 10 };

static const CUfunction_attribute dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
static CUcontext primary[2];
static CUkernel store;
static CUfunction function[2];

static void expect(int on_first, int on_second) {
    const int wanted[] = {on_first, on_second};
    for (int i = 0; i < 2; i++) {
        int of_kernel = -1, of_function = -1, here = -1;
        QUIET(cuCtxSetCurrent(primary[i]));
        QUIET(cuKernelGetAttribute(&of_kernel, dynamic, store, i));
        QUIET(cuFuncGetAttribute(&of_function, dynamic, function[i]));
        QUIET(cuFuncGetAttribute(&here, dynamic, (CUfunction)store));
        EXPECT(of_kernel == wanted[i] && of_function == wanted[i] && here == wanted[i]);
    }
}

static CUresult launch(int i, CUfunction which, unsigned shared) {
    CUdeviceptr word = 0;
    unsigned value = 5, back = 0;
    QUIET(cuCtxSetCurrent(primary[i]));
    QUIET(cuMemAlloc(&word, 4));
    QUIET(cuMemsetD32(word, 0, 1));
    CUresult result = cuLaunchKernel(which, 1, 1, 1, 1, 1, 1, shared, NULL, (void *[]){&word, &value}, NULL);
    QUIET(cuMemcpyDtoH(&back, word, 4));
    EXPECT(back == (result == CUDA_SUCCESS ? 5 : 0));
    QUIET(cuMemFree(word));
    return result;
}

// Launches go by the device of their stream and nodes by the one of their context, whichever is current.
static void elsewhere(void) {
    const CUresult wanted[] = {CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
    CUstream streams[2];
    CUdeviceptr words[2];
    CUgraph graph;
    CUgraphNode node;
    unsigned value = 5, back = 0;
    for (int i = 0; i < 2; i++) {
        QUIET(cuCtxSetCurrent(primary[i]));
        QUIET(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        QUIET(cuMemAlloc(&words[i], 4));
    }
    OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 2; i++) {
        void *params[] = {&words[i], &value};
        const CUDA_KERNEL_NODE_PARAMS of_node = {.kern = store,
                                                 .ctx = primary[i],
                                                 .gridDimX = 1,
                                                 .gridDimY = 1,
                                                 .gridDimZ = 1,
                                                 .blockDimX = 1,
                                                 .blockDimY = 1,
                                                 .blockDimZ = 1,
                                                 .sharedMemBytes = WANTED,
                                                 .kernelParams = params};
        QUIET(cuCtxSetCurrent(primary[1 - i]));
        CUresult launched =
            cuLaunchKernel((CUfunction)store, 1, 1, 1, 1, 1, 1, WANTED, streams[i], params, NULL);
        CUresult added = cuGraphAddKernelNode(&node, graph, NULL, 0, &of_node);
        EXPECT(launched == wanted[i] && added == wanted[i]);
    }
    OK(cuStreamSynchronize(streams[1]));
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuMemcpyDtoH(&back, words[1], 4));
    EXPECT(back == 5);
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++)
        QUIET(cuStreamDestroy(streams[i]));
}

int main(void) {
    CUlibrary library;
    OK(cuInit(0));
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&store, library, "store"));
    for (int i = 0; i < 2; i++) {
        OK(cuDevicePrimaryCtxRetain(&primary[i], i));
        OK(cuCtxSetCurrent(primary[i]));
        OK(cuKernelGetFunction(&function[i], store));
    }
    expect(48 << 10, 48 << 10);
    OK(cuKernelSetAttribute(dynamic, WANTED, store, 0));
    expect(WANTED, 48 << 10);
    OK(cuKernelSetAttribute(dynamic, SOME, store, 1));
    expect(WANTED, SOME);
    for (int i = 0; i < 2; i++) {
        CUfunction ways[] = {(CUfunction)store, function[i]};
        for (int way = 0; way < 2; way++) {
            OK(launch(i, ways[way], SOME));
            if (i == 0)
                OK(launch(i, ways[way], WANTED));
            else
                FAILS(CUDA_ERROR_INVALID_VALUE, launch(i, ways[way], WANTED));
        }
    }
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuFuncSetAttribute(function[1], dynamic, WANTED));
    OK(cuFuncSetAttribute(function[0], dynamic, 0)); // it stays its own device's
    expect(0, WANTED);
    OK(cuFuncSetAttribute((CUfunction)store, dynamic, SOME));
    expect(0, SOME);
    OK(cuKernelSetAttribute(dynamic, WANTED, store, 1));
    elsewhere();
    OK(cuLibraryUnload(library));
    return check_failed;
}
