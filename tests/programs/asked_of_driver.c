// What CUDA's own variables ask of the driver: with CUDA_LAUNCH_BLOCKING a launch returns when its kernel has
// run, with its error, unless it is captured; CUDA_MODULE_LOADING is told as it was given.
#include "driver.h"

#include <stdlib.h>

static void captured(CUstream stream, CUdeviceptr counter) {
    CUgraph graph;
    size_t nodes = 0;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &counter));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 1);
    OK(cuGraphDestroy(graph));
}

int main(void) {
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    start();
    CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
    CUstream stream;
    CUdeviceptr counter = allocate(4), nowhere = 0;
    unsigned value = 7;
    OK(cuModuleGetLoadingMode(&mode));
    EXPECT(mode == CU_MODULE_EAGER_LOADING);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 32; i++) {
        QUIET(LAUNCH(kernel("store"), 1, 1, stream, &counter, &value));
        EXPECT(cuStreamQuery(stream) == CUDA_SUCCESS);
    }
    captured(stream, counter);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, LAUNCH(kernel("store"), 1, 1, stream, &nowhere, &value));
    return check_failed;
}
