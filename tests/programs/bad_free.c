// Frees that CUDA refuses: twice, an address inside a block, host memory, the wrong function; NULL is fine.
#include "driver.h"

// A graph that copies from the program's memory may take memory for it where some was freed: not the
// program's.
static void beside_a_graph(void) {
    static unsigned words[1024] = {7};
    CUdeviceptr target = allocate(sizeof words), memory = allocate(sizeof words);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = words,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = target,
                          .WidthInBytes = sizeof words,
                          .Height = 1,
                          .Depth = 1};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    unsigned value = 0;
    OK(cuMemFree(memory));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 1, 4));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(&value, target, sizeof value));
    EXPECT(value == 7);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

int main(void) {
    start();
    CUdeviceptr memory, counter = allocate(4);
    void *pinned;
    int local = 0;
    OK(cuMemAlloc(&memory, 4096));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemsetD32(counter, 10, 1));

    OK(cuMemFree(0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory + 256));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree((CUdeviceptr)(uintptr_t)&local));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(&local));
    OK(cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    OK(cuMemFreeHost(pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));

    beside_a_graph();
    unsigned value = 0;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 11);
    return check_failed;
}
