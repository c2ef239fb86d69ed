// A graph that moves into another one: its handle and its nodes' stay, it is its parent's from then on, what
// is added to it runs with the parent, and it ends with it. One that did not get there is the program's
// still.
#include "graphs.h"

static CUdeviceptr counter;
static CUcontext here;

static CUgraph new_graph(void) {
    CUgraph graph = NULL;
    QUIET(cuGraphCreate(&graph, 0));
    return graph;
}

// Nodes of one graph, each behind the one before.
static CUgraphNode count_up(CUgraph graph, CUgraphNode before) {
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS params = launch_of(kernel("count_up"), 1, 1, (void *[]){&counter});
    params.ctx = here;
    QUIET(cuGraphAddKernelNode(&node, graph, before != NULL ? &before : NULL, before != NULL, &params));
    return node;
}

static CUresult move_behind(CUgraphNode *node, CUgraph parent, CUgraphNode before,
                            const CUgraphEdgeData *edge, CUgraph child) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
                                .graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    return cuGraphAddNode(node, parent, &before, edge, before != NULL, &params);
}

static CUresult move(CUgraphNode *node, CUgraph parent, CUgraphNode before, CUgraph child) {
    return move_behind(node, parent, before, NULL, child);
}

static unsigned counted(CUgraph graph) {
    CUgraphExec exec;
    unsigned value = 0;
    QUIET(cuMemsetD32(counter, 0, 1));
    QUIET(cuGraphInstantiate(&exec, graph, 0));
    QUIET(cuGraphLaunch(exec, NULL));
    QUIET(cuMemcpyDtoH(&value, counter, sizeof value));
    QUIET(cuGraphExecDestroy(exec));
    return value;
}

int main(void) {
    start();
    OK(cuCtxGetCurrent(&here));
    counter = allocate(4);
    CUgraph parent = new_graph(), child = new_graph(), other = new_graph(), found = NULL;
    CUgraphNode within = count_up(child, NULL), stranger = count_up(other, NULL), node = NULL;
    CUgraphExec exec;
    const CUgraphEdgeData no_edge = {.type = 77};
    size_t nodes = 0;
    CUgraphNode first = count_up(parent, NULL);

    FAILS(CUDA_ERROR_INVALID_VALUE, move(&node, parent, stranger, child)); // it has no such node
    FAILS(CUDA_ERROR_INVALID_VALUE, move(&node, child, NULL, child));
    FAILS(CUDA_ERROR_INVALID_VALUE, move_behind(&node, parent, first, &no_edge, child));
    EXPECT(counted(child) == 1);
    OK(move(&node, parent, first, child));
    OK(cuGraphChildGraphNodeGetGraph(node, &found));
    EXPECT(found == child);
    EXPECT(counted(parent) == 2);

    count_up(child, within);
    count_up(parent, node);
    EXPECT(counted(parent) == 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, child, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(child));
    FAILS(CUDA_ERROR_INVALID_VALUE, move(&node, other, NULL, child));
    FAILS(CUDA_ERROR_INVALID_VALUE, move(&node, child, NULL, parent)); // it would be within itself

    OK(cuGraphClone(&found, parent));
    EXPECT(counted(found) == 4);
    OK(cuGraphDestroy(found));
    OK(move(&node, other, stranger, parent)); // with what has moved into it
    EXPECT(counted(other) == 5);
    OK(cuGraphGetNodes(child, NULL, &nodes));
    EXPECT(nodes == 2);
    OK(cuGraphDestroy(other));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(child, NULL, &nodes));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(parent, NULL, &nodes));
    return check_failed;
}
