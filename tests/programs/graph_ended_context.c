// A graph whose nodes work in the contexts of two devices, one of which ends after the graph was made
// executable: its launch says so, also when the context is there again, and launches what does not need it.
//
// suite: devices
#include "graphs.h"

enum { WORDS = 64 };

static CUcontext primary[2];

// The context of the other device may be another one than the first device's memory lies in.
static void fill_of(CUgraph graph, CUgraphNode *node, CUcontext in, CUdeviceptr memory) {
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = memory, .value = 7, .elementSize = 4, .width = WORDS, .height = 1};
    OK(cuGraphAddMemsetNode(node, graph, NULL, 0, &fill, in));
}

static void copy_of(CUgraph graph, CUgraphNode *node, CUcontext in, CUdeviceptr memory) {
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = memory,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = memory + WORDS * 4,
                                .WidthInBytes = WORDS * 4,
                                .Height = 1,
                                .Depth = 1};
    OK(cuGraphAddMemcpyNode(node, graph, NULL, 0, &copy, in));
}

static void word_of(CUgraph graph, CUgraphNode *node, CUcontext in, CUdeviceptr memory) {
    CUstreamBatchMemOpParams write = {
        .writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory, {.value = 9}, 0}};
    const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = in, .count = 1, .paramArray = &write};
    OK(cuGraphAddBatchMemOpNode(node, graph, NULL, 0, &batch));
}

typedef void (*Adds)(CUgraph, CUgraphNode *, CUcontext, CUdeviceptr);

static void with(const char *what, Adds adds, CUdeviceptr memory) {
    CUgraph graph, outer;
    CUgraphNode here, there, child;
    CUgraphExec alone, both, nested;
    printf("%s\n", what);
    OK(cuDevicePrimaryCtxRetain(&primary[1], 1));
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuGraphCreate(&graph, 0));
    adds(graph, &here, primary[0], memory);
    OK(cuGraphInstantiateWithFlags(&alone, graph, 0));
    adds(graph, &there, primary[1], memory);
    OK(cuGraphInstantiateWithFlags(&both, graph, 0));
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, graph));
    OK(cuGraphInstantiateWithFlags(&nested, outer, 0));
    OK(cuGraphLaunch(both, NULL));
    OK(cuGraphLaunch(nested, NULL));
    OK(cuCtxSynchronize());

    OK(cuDevicePrimaryCtxReset(1));
    OK(cuGraphLaunch(alone, NULL));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(both, NULL));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(nested, NULL));
    OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRelease(1)); // who retained it releases it all the same

    OK(cuDevicePrimaryCtxRetain(&primary[1], 1));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(both, NULL));
    OK(cuDevicePrimaryCtxRelease(1));

    OK(cuGraphLaunch(alone, NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(alone));
    OK(cuGraphExecDestroy(both));
    OK(cuGraphExecDestroy(nested));
    OK(cuGraphDestroy(outer));
    OK(cuGraphDestroy(graph));
}

// What is set of a node stays in the node's context, unless another one is named.
static void changes(CUdeviceptr memory) {
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .value = 8, .elementSize = 4, .width = WORDS, .height = 1};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUcontext own;
    OK(cuCtxCreate(&own, NULL, 0, 0));
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuGraphCreate(&graph, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, (CUcontext)memory));
    fill_of(graph, &node, own, memory);
    OK(cuGraphMemsetNodeSetParams(node, &fill));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxDestroy(own));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(exec, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGraphExecMemsetNodeSetParams(exec, node, &fill, own));
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, primary[0]));
    OK(cuGraphLaunch(exec, NULL));
    unsigned words[WORDS];
    OK(cuMemcpyDtoH(words, memory, sizeof words));
    EXPECT(words[0] == 8 && words[WORDS - 1] == 8);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

int main(void) {
    unsigned words[2 * WORDS];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary[0], 0));
    OK(cuCtxSetCurrent(primary[0]));
    CUdeviceptr memory = allocate(2 * WORDS * 4);
    with("fills", fill_of, memory);
    with("copies", copy_of, memory);
    with("words", word_of, memory);
    OK(cuMemcpyDtoH(words, memory, sizeof words));
    EXPECT(words[0] == 9 && words[1] == 7 && words[WORDS] == 7 && words[2 * WORDS - 1] == 7);
    changes(memory);
    return check_failed;
}
