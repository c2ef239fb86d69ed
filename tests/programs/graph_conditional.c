// Conditional nodes: a body runs if, as long as, or which one by a value that kernels of the graph set.
#include "conditional.h"

static CUfunction set, count_up;
static CUdeviceptr counter, value;
static CUstream stream;

/* How often the counter was raised by a graph whose condition begins as `start`. */
static unsigned run(CUgraphConditionalNodeType type, unsigned size, unsigned counting_body, unsigned start,
                    int sets_before) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node, before = NULL;
    unsigned raised = 0;
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle = add_condition(graph, start);
    void *arguments[] = {&handle, &value};
    if (sets_before)
        before = add_kernel(graph, NULL, set, arguments);
    CUgraph body = add_conditional(graph, before, handle, type, size, &node)[counting_body];
    CUgraphNode inner = add_kernel(body, NULL, count_up, (void *[]){&counter});
    if (type == CU_GRAPH_COND_TYPE_WHILE)
        add_kernel(body, inner, set, arguments);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuMemsetD32(value, 4, 1));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&raised, counter, 4));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return raised;
}

int main(void) {
    start();
    set = set_kernel();
    count_up = kernel("count_up");
    counter = allocate(4);
    value = allocate(4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    EXPECT(run(CU_GRAPH_COND_TYPE_IF, 1, 0, 1, 0) == 1);
    EXPECT(run(CU_GRAPH_COND_TYPE_IF, 1, 0, 0, 0) == 0);
    EXPECT(run(CU_GRAPH_COND_TYPE_IF, 1, 0, 0, 1) == 1);
    EXPECT(run(CU_GRAPH_COND_TYPE_IF, 2, 1, 0, 0) == 1);
    EXPECT(run(CU_GRAPH_COND_TYPE_IF, 2, 1, 1, 0) == 0);
    EXPECT(run(CU_GRAPH_COND_TYPE_WHILE, 1, 0, 1, 0) == 5); /* 4, 3, 2, 1, 0 */
    EXPECT(run(CU_GRAPH_COND_TYPE_WHILE, 1, 0, 0, 0) == 0);
    EXPECT(run(CU_GRAPH_COND_TYPE_SWITCH, 5, 3, 3, 0) == 1);
    EXPECT(run(CU_GRAPH_COND_TYPE_SWITCH, 5, 3, 2, 0) == 0);
    EXPECT(run(CU_GRAPH_COND_TYPE_SWITCH, 5, 4, 0, 1) == 1);
    EXPECT(run(CU_GRAPH_COND_TYPE_SWITCH, 2, 0, 7, 0) == 0);

    CUgraph graph, other;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraphConditionalHandle handle;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&other, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&handle, graph, context, 0, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(NULL, graph, context, 0, 0));
    OK(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
    CUDA_GRAPH_INSTANTIATE_PARAMS instantiate = {0};
    CALL(cuGraphInstantiateWithParams(&exec, graph, &instantiate));
    EXPECT(instantiate.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    CUgraph clone;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = handle, .type = CU_GRAPH_COND_TYPE_SWITCH, .size = 0}};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    params.conditional.size = 1;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    params.conditional.ctx = context;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, other, NULL, NULL, 0, &params));
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    OK(cuGraphInstantiate(&exec, graph, 0));
    CUgraphExec second;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, graph, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));
    return check_failed;
}
