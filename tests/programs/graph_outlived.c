// A launch outlives its executable graph, with all that it needs: the functions of the program, and large
// copies between them.
#include "graphs.h"

enum { WORDS = 2 << 20 };

static unsigned *before, *after, calls;

static void CUDA_CB fill(void *value) {
    for (unsigned i = 0; i < WORDS; i++)
        before[i] = i + *(unsigned *)value;
}

static void CUDA_CB look(void *value) {
    calls += after[0] == *(unsigned *)value && after[WORDS - 1] == WORDS - 1 + *(unsigned *)value;
}

static CUDA_MEMCPY3D copy(CUdeviceptr to, CUdeviceptr from) {
    return (CUDA_MEMCPY3D){.srcMemoryType = from ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .srcHost = before,
                           .srcDevice = from,
                           .dstMemoryType = to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .dstHost = after,
                           .dstDevice = to,
                           .WidthInBytes = WORDS * 4,
                           .Height = 1,
                           .Depth = 1};
}

int main(void) {
    start();
    CUdeviceptr data = allocate(WORDS * 4);
    CUstream stream;
    static unsigned values[3] = {7, 70, 700};
    OK(cuMemAllocHost((void **)&before, WORDS * 4));
    OK(cuMemAllocHost((void **)&after, WORDS * 4));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode first, in, out, last;
        CUDA_HOST_NODE_PARAMS filling = {fill, &values[i]}, looking = {look, &values[i]};
        CUDA_MEMCPY3D to_device = copy(data, 0), to_host = copy(0, data);
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddHostNode(&first, graph, NULL, 0, &filling));
        OK(cuGraphAddMemcpyNode(&in, graph, &first, 1, &to_device, context));
        OK(cuGraphAddMemcpyNode(&out, graph, &in, 1, &to_host, context));
        OK(cuGraphAddHostNode(&last, graph, &out, 1, &looking));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphLaunch(exec, stream));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuStreamSynchronize(stream));
    EXPECT(calls == 3);
    return check_failed;
}
