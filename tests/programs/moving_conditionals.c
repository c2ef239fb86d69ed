// A program of rounds that launches graphs with conditional nodes, whose kernels were given the values that
// decide: the driver's own, so they are the same wherever the program is moved. Others were made before and
// are gone, and one graph is made executable anew in each round.
#include "conditional.h"
#include "rounds.h"

static CUfunction set, count_up;
static CUdeviceptr counter, other, value;
static CUstream stream;

static unsigned launched(CUgraphExec exec, CUdeviceptr where, unsigned from) {
    unsigned raised = 0;
    QUIET(cuMemsetD32(counter, 0, 1));
    QUIET(cuMemsetD32(other, 0, 1));
    QUIET(cuMemsetD32(value, from, 1));
    QUIET(cuStreamSynchronize(NULL));
    QUIET(cuGraphLaunch(exec, stream));
    QUIET(cuStreamSynchronize(stream));
    QUIET(cuMemcpyDtoH(&raised, where, 4));
    return raised;
}

// A loop in which a switch chooses what is counted by the same number: `counter` for 1, `other` for 3.
static CUgraph looping(CUgraphNode *counts) {
    CUgraph graph;
    CUgraphNode loop, choice;
    QUIET(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle outer = add_condition(graph, 1), inner = add_condition(graph, 0);
    CUgraph body = *add_conditional(graph, NULL, outer, CU_GRAPH_COND_TYPE_WHILE, 1, &loop);
    CUgraphNode first = add_kernel(body, NULL, set, (void *[]){&inner, &value});
    CUgraph *cases = add_conditional(body, first, inner, CU_GRAPH_COND_TYPE_SWITCH, 4, &choice);
    add_kernel(cases[1], NULL, count_up, (void *[]){&counter});
    *counts = add_kernel(cases[3], NULL, count_up, (void *[]){&other});
    add_kernel(body, choice, set, (void *[]){&outer, &value});
    return graph;
}

int main(int argc, char **argv) {
    start();
    CUgraph gone, lasting, renewed;
    CUgraphExec exec, anew;
    CUgraphNode counts, unused, choice;
    set = set_kernel();
    count_up = kernel("count_up");
    counter = allocate(4);
    other = allocate(4);
    value = allocate(4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gone = looping(&unused);
    lasting = looping(&counts);
    OK(cuGraphInstantiate(&exec, lasting, 0));
    OK(cuGraphDestroy(gone)); // what follows takes one of its values

    OK(cuGraphCreate(&renewed, 0));
    CUgraphConditionalHandle handle = add_condition(renewed, 1);
    CUgraph body = *add_conditional(renewed, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &choice);
    CUgraphNode last = NULL;
    for (int round = 0; round < rounds_wanted(argc, argv); round++) {
        begin_round(round);
        last = add_kernel(body, last, count_up, (void *[]){&counter});
        OK(cuGraphInstantiate(&anew, renewed, 0));
        EXPECT(launched(anew, counter, 0) == (unsigned)round + 1);
        OK(cuGraphExecDestroy(anew));

        // 5 chooses nothing and 4 goes on, 3 counts and 2 goes on, 1 counts and 0 ends it
        EXPECT(launched(exec, counter, 5) == (round % 2 ? 2 : 1));
        EXPECT(launched(exec, other, 5) == (round % 2 ? 0 : 1));
        CUDA_KERNEL_NODE_PARAMS launch = {.func = count_up,
                                          1,
                                          1,
                                          1,
                                          1,
                                          1,
                                          1,
                                          0,
                                          (void *[]){round % 2 ? &other : &counter},
                                          NULL,
                                          NULL,
                                          NULL};
        OK(cuGraphExecKernelNodeSetParams(exec, counts, &launch));
    }
    OK(cuGraphDestroy(lasting));
    EXPECT(launched(exec, counter, 5) >= 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(renewed));
    return check_failed;
}
