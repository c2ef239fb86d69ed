// A program of rounds that launches a graph with child graphs, one within another, whose kernels have
// attributes of their own; some nodes are changed, and some are switched off, before the program is moved.
#include "graphs.h"
#include "rounds.h"

enum { WORDS = 64 };

static CUdeviceptr data;
static CUfunction affine;

static CUgraphNode add(CUgraph graph, CUgraphNode after, unsigned factor, unsigned term) {
    unsigned count = WORDS;
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(affine, 1, WORDS, (void *[]){&data, &count, &factor, &term});
    CUgraphNode node = NULL;
    QUIET(cuGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &launch));
    return node;
}

static void set_priority(CUgraphNode node, int priority) {
    CUkernelNodeAttrValue value = {.priority = priority};
    QUIET(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
}

static CUgraphNode found(CUgraph clone, CUgraphNode original) {
    CUgraphNode node = NULL;
    QUIET(cuGraphNodeFindInClone(&node, original, clone));
    return node;
}

int main(int argc, char **argv) {
    start();
    CUgraph innermost, inner, graph, part;
    CUgraphExec exec;
    CUgraphNode node, child, grandchild, deep, off;
    CUstream stream;
    unsigned values[WORDS], count = WORDS, factor, term, expected = 0;
    data = allocate(WORDS * 4);
    affine = kernel("affine");
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&innermost, 0));
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphCreate(&graph, 0));
    deep = add(innermost, NULL, 3, 0);
    set_priority(deep, -1);
    node = add(inner, NULL, 1, 5);
    OK(cuGraphAddChildGraphNode(&grandchild, inner, &node, 1, innermost));
    OK(cuGraphChildGraphNodeGetGraph(grandchild, &part));
    deep = found(part, deep);
    off = add(inner, grandchild, 7, 0);
    node = add(graph, NULL, 1, 1);
    set_priority(node, -2);
    OK(cuGraphAddChildGraphNode(&child, graph, &node, 1, inner));
    add(graph, child, 2, 0);

    // The nodes as they are within the graph, which are those that an executable graph is changed by.
    OK(cuGraphChildGraphNodeGetGraph(child, &part));
    off = found(part, off);
    grandchild = found(part, grandchild);
    OK(cuGraphChildGraphNodeGetGraph(grandchild, &part));
    deep = found(part, deep);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuMemsetD32(data, 0, WORDS));
    OK(cuCtxSynchronize());
    for (int round = 0; round < rounds_wanted(argc, argv); round++) {
        factor = 3 + (unsigned)round;
        term = (unsigned)round;
        CUDA_KERNEL_NODE_PARAMS launch =
            launch_of(affine, 1, WORDS, (void *[]){&data, &count, &factor, &term});
        OK(cuGraphExecKernelNodeSetParams(exec, deep, &launch));
        OK(cuGraphNodeSetEnabled(exec, off, round % 2));
        begin_round(round);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        expected = (((expected + 1) + 5) * factor + term) * (round % 2 ? 7 : 1) * 2;
        OK(cuMemcpyDtoH(values, data, sizeof values));
        unsigned wrong = 0, enabled = 2;
        for (unsigned i = 0; i < WORDS; i++)
            wrong += values[i] != expected;
        EXPECT(wrong == 0);
        OK(cuGraphNodeGetEnabled(exec, off, &enabled));
        EXPECT(enabled == (unsigned)round % 2);
        CUkernelNodeAttrValue value;
        OK(cuGraphKernelNodeGetAttribute(deep, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
        EXPECT(value.priority == -1);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(inner));
    OK(cuGraphDestroy(innermost));
    return check_failed;
}
