// A function is loaded when it is first used, or when it is asked for: by cuFuncLoad, a launch, a node of a
// graph; not by what its attributes or its occupancy are asked for. CUDA_MODULE_LOADING=EAGER loads all at
// once.
#include "driver.h"

static CUmodule another(void) {
    CUmodule module;
    QUIET(cuModuleLoadData(&module, kernels_ptx));
    return module;
}

static CUfunction fresh(void) {
    CUfunction function;
    QUIET(cuModuleGetFunction(&function, another(), "count_up"));
    return function;
}

static int is_loaded(CUfunction function) {
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_MAX;
    QUIET(cuFuncIsLoaded(&state, function));
    return (int)state;
}

int main(void) {
    CUmoduleLoadingMode mode;
    start();
    OK(cuModuleGetLoadingMode(&mode));
    const int eager = mode == CU_MODULE_EAGER_LOADING;
    CUdeviceptr word = allocate(4);
    void *values[] = {&word};
    int number;
    CUfunction function = fresh();
    EXPECT(is_loaded(function) == eager);
    OK(cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&number, function, 128, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, LAUNCH(function, 0, 1, NULL, &word));
    EXPECT(is_loaded(function) == eager);
    OK(LAUNCH(function, 1, 1, NULL, &word));
    OK(cuCtxSynchronize());
    EXPECT(is_loaded(function) == 1);
    EXPECT(is_loaded(fresh()) == eager);

    function = fresh();
    OK(cuFuncLoad(function));
    EXPECT(is_loaded(function) == 1);

    CUgraph graph;
    CUgraphNode node;
    function = fresh();
    const CUDA_KERNEL_NODE_PARAMS params = {function, 1, 1, 1, 1, 1, 1, 0, values, NULL, NULL, NULL};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    EXPECT(is_loaded(function) == 1);

    CUlibrary library;
    CUkernel kernel;
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "count_up"));
    EXPECT(is_loaded((CUfunction)kernel) == eager);
    OK(cuKernelGetFunction(&function, kernel));
    OK(LAUNCH(function, 1, 1, NULL, &word));
    OK(cuCtxSynchronize());
    EXPECT(is_loaded(function) == 1);
    EXPECT(is_loaded((CUfunction)kernel) == 1);
    expect_it_still_works();
    return check_failed;
}
