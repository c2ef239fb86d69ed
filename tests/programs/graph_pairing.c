// An update pairs the nodes of two graphs by their edges: from the exits, in the order in which they were
// added, along each node's dependencies in their order. In which order other nodes were added means nothing.
#include "graphs.h"

enum { WORDS = 64 };

static CUdeviceptr data[2];
static CUstream stream;

static CUgraphNode fill(CUgraph graph, CUdeviceptr to, unsigned value, CUgraphNode after) {
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = to, .value = value, .elementSize = 4, .width = WORDS, .height = 1};
    CUgraphNode node = NULL;
    QUIET(cuGraphAddMemsetNode(&node, graph, &after, after ? 1 : 0, &params, context));
    return node;
}

static CUgraphNode affine(CUgraph graph, CUdeviceptr on, unsigned factor, const CUgraphNode *after,
                          size_t count) {
    unsigned words = WORDS, term = 1;
    void *arguments[] = {&on, &words, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS params = launch_of(kernel("affine"), 1, WORDS, arguments);
    CUgraphNode node = NULL;
    QUIET(cuGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

static unsigned word_of(CUdeviceptr from) {
    unsigned value = 0;
    QUIET(cuMemcpyDtoH(&value, from, 4));
    return value;
}

int main(void) {
    start();
    CUgraph graph, other, third;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUgraphNode fills[2], last;
    data[0] = allocate(WORDS * 4);
    data[1] = allocate(WORDS * 8);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    fills[0] = fill(graph, data[0], 1, NULL);
    fills[1] = affine(graph, data[1], 0, NULL, 0);
    last = affine(graph, data[0], 2, fills, 2);
    OK(cuGraphInstantiate(&exec, graph, 0));

    printf("another order of creation\n");
    OK(cuGraphCreate(&other, 0));
    fills[1] = affine(other, data[1], 0, NULL, 0);
    fills[0] = fill(other, data[0], 10, NULL);
    last = affine(other, data[0], 3, fills, 2);
    OK(cuGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && !info.errorNode && !info.errorFromNode);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(word_of(data[0]) == 31 && word_of(data[1]) == 1);

    printf("another order of dependencies\n");
    OK(cuGraphCreate(&third, 0));
    fills[0] = affine(third, data[1], 0, NULL, 0);
    fills[1] = fill(third, data[0], 10, NULL);
    last = affine(third, data[0], 3, fills, 2);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, third, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED && info.errorNode == fills[0]);
    OK(cuGraphDestroy(third));

    printf("another number of dependencies\n");
    OK(cuGraphCreate(&third, 0));
    fills[0] = fill(third, data[0], 10, NULL);
    fills[1] = fill(third, data[1], 10, fills[0]);
    last = affine(third, data[0], 3, &fills[1], 1);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, third, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == last);
    OK(cuGraphDestroy(third));

    printf("more exits\n");
    OK(cuGraphCreate(&third, 0));
    fill(third, data[0], 10, NULL);
    fill(third, data[1], 10, NULL);
    last = fill(third, data[1] + 4, 10, NULL);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, third, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphDestroy(third));

    printf("fewer exits\n");
    CUgraph wide, chain;
    CUgraphExec wide_exec;
    OK(cuGraphCreate(&wide, 0));
    OK(cuGraphCreate(&chain, 0));
    fill(wide, data[0], 10, NULL);
    fill(wide, data[1], 10, NULL);
    last = fill(chain, data[1], 10, fill(chain, data[0], 10, NULL));
    OK(cuGraphInstantiate(&wide_exec, wide, 0));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(wide_exec, chain, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == last);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(word_of(data[0]) == 31);
    return check_failed;
}
