// A kernel of a library and the functions got from it have one set of attributes, whoever sets them, also for
// what is captured.
#include "driver.h"

enum { WANTED = 60 << 10, MORE = 62 << 10 };

static const CUfunction_attribute dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

static CUresult launch(CUfunction function, unsigned shared, CUstream stream, CUdeviceptr word,
                       unsigned value) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared, stream, (void *[]){&word, &value}, NULL);
}

// What either handle says.
static void expect(CUkernel kernel, CUfunction function, int bytes) {
    int of_kernel = -1, of_function = -1;
    QUIET(cuKernelGetAttribute(&of_kernel, dynamic, kernel, device));
    QUIET(cuFuncGetAttribute(&of_function, dynamic, function));
    EXPECT(of_kernel == bytes && of_function == bytes);
}

int main(void) {
    CUlibrary library;
    CUkernel store;
    CUmodule instance;
    CUfunction function, by_name;
    CUstream stream;
    CUgraph graph;
    CUgraphExec executable;
    unsigned value = 0;
    start();
    CUdeviceptr word = allocate(4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&store, library, "store"));
    OK(cuKernelGetFunction(&function, store));
    FAILS(CUDA_ERROR_INVALID_VALUE, launch((CUfunction)store, WANTED, stream, word, 1));

    OK(cuKernelSetAttribute(dynamic, WANTED, store, device));
    expect(store, function, WANTED);
    CUfunction ways[] = {(CUfunction)store, function};
    for (unsigned i = 0; i < 2; i++) {
        OK(launch(ways[i], WANTED, stream, word, 10 + i));
        OK(cuMemcpyDtoHAsync(&value, word, 4, stream));
        OK(cuStreamSynchronize(stream));
        EXPECT(value == 10 + i);
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        OK(launch(ways[i], WANTED, stream, word, 20 + i));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphInstantiate(&executable, graph, 0));
        OK(cuGraphLaunch(executable, stream));
        OK(cuMemcpyDtoHAsync(&value, word, 4, stream));
        OK(cuStreamSynchronize(stream));
        EXPECT(value == 20 + i);
        OK(cuGraphExecDestroy(executable));
        OK(cuGraphDestroy(graph));
    }

    OK(cuFuncSetAttribute(function, dynamic, MORE));
    expect(store, function, MORE);
    OK(launch((CUfunction)store, MORE, stream, word, 30));
    OK(cuLibraryGetModule(&instance, library));
    OK(cuModuleGetFunction(&by_name, instance, "store")); // a handle that was made after all that
    expect(store, by_name, MORE);
    OK(cuKernelSetAttribute(dynamic, 0, store, device));
    expect(store, by_name, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, launch(by_name, 1, stream, word, 40));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, word, 4));
    EXPECT(value == 30);
    OK(cuLibraryUnload(library));
    return check_failed;
}
