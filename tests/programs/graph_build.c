// A graph of kernels, fills and copies, added node by node, queried, cloned, launched many times.
#include "graphs.h"

enum { COUNT = 1000 };

static CUdeviceptr first, second;
static unsigned words[COUNT];

static unsigned wrong(CUdeviceptr from, unsigned seed) {
    unsigned bad = 0;
    QUIET(cuMemcpyDtoH(words, from, sizeof words));
    for (unsigned i = 0; i < COUNT; i++)
        bad += words[i] != (i ^ seed) * 2654435761u;
    return bad;
}

int main(void) {
    CUgraph graph, clone, child;
    CUgraphNode fill, clear, copy, empty, within, nodes[8], from[8], to[8];
    CUgraphExec exec, other;
    CUstream stream;
    CUgraphNodeType type;
    unsigned count = COUNT, seed = 7;
    size_t number = 0;
    start();
    first = allocate(sizeof words);
    second = allocate(sizeof words);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    void *arguments[] = {&first, &count, &seed};
    CUDA_KERNEL_NODE_PARAMS kernel_node = launch_of(kernel("fill"), 8, 128, arguments);
    CUDA_MEMSET_NODE_PARAMS memset_node = {
        .dst = second, .pitch = 0, .value = 5, .elementSize = 4, .width = COUNT, .height = 1};
    CUDA_MEMCPY3D memcpy_node = copy_on_device(second, first, sizeof words);
    OK(cuGraphAddKernelNode(&fill, graph, NULL, 0, &kernel_node));
    seed = 99; // parameters were copied
    OK(cuGraphAddMemsetNode(&clear, graph, NULL, 0, &memset_node, context));
    OK(cuGraphAddEmptyNode(&empty, graph, (CUgraphNode[]){fill, clear}, 2));
    OK(cuGraphAddMemcpyNode(&copy, graph, &empty, 1, &memcpy_node, context));

    OK(cuGraphGetNodes(graph, NULL, &number));
    EXPECT(number == 4);
    number = 8;
    OK(cuGraphGetNodes(graph, nodes, &number));
    EXPECT(number == 4 && nodes[0] == fill && nodes[3] == copy);
    number = 8;
    OK(cuGraphGetRootNodes(graph, nodes, &number));
    EXPECT(number == 2 && nodes[0] == clear && nodes[1] == fill); // the last first
    number = 8;
    OK(cuGraphGetEdges(graph, from, to, NULL, &number));
    EXPECT(number == 3);
    number = 8;
    OK(cuGraphNodeGetDependencies(empty, nodes, NULL, &number));
    EXPECT(number == 2);
    number = 8;
    OK(cuGraphNodeGetDependentNodes(empty, nodes, NULL, &number));
    EXPECT(number == 1 && nodes[0] == copy);
    OK(cuGraphNodeGetType(copy, &type));
    EXPECT(type == CU_GRAPH_NODE_TYPE_MEMCPY);
    CUDA_KERNEL_NODE_PARAMS got;
    OK(cuGraphKernelNodeGetParams(fill, &got));
    EXPECT(got.func == kernel_node.func && got.gridDimX == 8 && *(unsigned *)got.kernelParams[2] == 7);
    CUDA_MEMSET_NODE_PARAMS got_fill;
    OK(cuGraphMemsetNodeGetParams(clear, &got_fill));
    EXPECT(got_fill.dst == second && got_fill.value == 5);

    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 20; i++)
        QUIET(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(wrong(first, 7) == 0);
    EXPECT(wrong(second, 7) == 0);

    // The graph changes; what was made executable of it does not.
    seed = 11;
    OK(cuGraphKernelNodeSetParams(fill, &kernel_node));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(wrong(second, 7) == 0);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&within, fill, clone));
    EXPECT(within != fill);
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&empty, graph, NULL, 0, clone));
    OK(cuGraphDestroy(clone));
    OK(cuGraphChildGraphNodeGetGraph(empty, &child));
    number = 0;
    OK(cuGraphGetNodes(child, NULL, &number));
    EXPECT(number == 4);
    memset_node.dst = first;
    OK(cuGraphAddMemsetNode(&clear, graph, &empty, 1, &memset_node, context));
    OK(cuGraphInstantiate(&other, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(other, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(wrong(second, 11) == 0);
    OK(cuMemcpyDtoH(words, first, sizeof words));
    EXPECT(words[0] == 5 && words[COUNT - 1] == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(other));
    OK(cuStreamDestroy(stream));
    return check_failed;
}
