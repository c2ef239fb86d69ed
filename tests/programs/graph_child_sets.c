// Another child graph in the place of a node's: what was made executable before stays as it was, the handles
// of the one before and of all within it end, and the node takes what it refers to.
#include "graphs.h"

static CUdeviceptr counter;
static CUcontext here;

// A graph that adds `times` to the counter, within `depth` others.
static CUgraph counting(unsigned times, unsigned depth) {
    CUgraph graph = NULL, around = NULL;
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS params = launch_of(kernel("count_up"), 1, 1, (void *[]){&counter});
    params.ctx = here;
    QUIET(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < times; i++) {
        CUgraphNode before = node;
        QUIET(cuGraphAddKernelNode(&node, graph, &before, i > 0, &params));
    }
    for (; depth > 0; depth--) {
        QUIET(cuGraphCreate(&around, 0));
        QUIET(cuGraphAddChildGraphNode(&node, around, NULL, 0, graph));
        QUIET(cuGraphDestroy(graph));
        graph = around;
    }
    return graph;
}

static unsigned counted(CUgraphExec exec) {
    unsigned value = 0;
    QUIET(cuMemsetD32(counter, 0, 1));
    QUIET(cuGraphLaunch(exec, NULL));
    QUIET(cuMemcpyDtoH(&value, counter, sizeof value));
    QUIET(cuGraphExecDestroy(exec));
    return value;
}

static CUresult set(CUgraphNode node, CUgraph child, CUgraphChildGraphNodeOwnership ownership) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {child, ownership}};
    return cuGraphNodeSetParams(node, &params);
}

static CUresult set_copy(CUgraphNode node, CUgraph child) {
    return set(node, child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
}

int main(void) {
    start();
    OK(cuCtxGetCurrent(&here));
    counter = allocate(4);
    CUgraph parent, first = counting(1, 1), second = counting(3, 0), third = counting(5, 0), child, inner,
                    found;
    CUgraphExec before, after;
    CUgraphNode node, within;
    CUgraphNodeParams params;
    size_t count = 1;
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, first));
    OK(cuGraphChildGraphNodeGetGraph(node, &child));
    OK(cuGraphGetNodes(child, &within, &count));
    OK(cuGraphChildGraphNodeGetGraph(within, &inner));
    OK(cuGraphInstantiate(&before, parent, 0));

    FAILS(CUDA_ERROR_INVALID_VALUE, set_copy(node, parent)); // it would be within itself
    FAILS(CUDA_ERROR_INVALID_VALUE, set_copy(node, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, set(node, second, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID));
    OK(cuGraphGetNodes(inner, NULL, &count));
    EXPECT(count == 1);

    OK(set_copy(node, second));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(child, NULL, &count));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(inner, NULL, &count));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphChildGraphNodeGetGraph(within, &found));
    OK(cuGraphDestroy(second));
    OK(cuGraphInstantiate(&after, parent, 0));
    EXPECT(counted(before) == 1);
    EXPECT(counted(after) == 3);

    OK(cuGraphChildGraphNodeGetGraph(node, &child));
    OK(cuGraphNodeGetParams(node, &params));
    EXPECT(params.graph.graph == child);
    OK(cuGraphGetNodes(child, NULL, &count));
    EXPECT(count == 3);
    OK(set_copy(node, child)); // a copy of itself
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(child, NULL, &count));
    OK(cuGraphInstantiate(&after, parent, 0));
    EXPECT(counted(after) == 3);

    OK(set(node, third, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE));
    OK(cuGraphChildGraphNodeGetGraph(node, &child));
    EXPECT(child == third);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(third));
    FAILS(CUDA_ERROR_INVALID_VALUE, set(node, third, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE));
    OK(cuGraphInstantiate(&after, parent, 0));
    EXPECT(counted(after) == 5);

    OK(set_copy(node, first)); // of another shape
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(third, NULL, &count));
    OK(cuGraphInstantiate(&after, parent, 0));
    EXPECT(counted(after) == 1);
    OK(cuGraphDestroy(first));
    OK(cuGraphDestroy(parent));
    return check_failed;
}
