// Conditional nodes: a body runs if, as long as, or which one by a value that kernels of the graph set.
//
// remote: no   the guest does not carry conditional nodes yet
#include "driver.h"

// set: the condition becomes *from, which it counts down. What nvcc makes of cudaGraphSetConditional.
static const char count_down_ptx[] =
    ".version 8.3\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
    ".visible .entry set(.param .u64 handle, .param .u64 from)\n"
    "{\n"
    "    .reg .b32 %r<3>;\n"
    "    .reg .b64 %d<3>;\n"
    "    ld.param.u64 %d1, [handle];\n"
    "    ld.param.u64 %d2, [from];\n"
    "    ld.global.u32 %r1, [%d2];\n"
    "    sub.u32 %r2, %r1, 1;\n"
    "    st.global.u32 [%d2], %r2;\n"
    "    { .param .b64 p0; st.param.b64 [p0], %d1; .param .b32 p1; st.param.b32 [p1], %r1;\n"
    "      call.uni cudaGraphSetConditional, (p0, p1); }\n"
    "    ret;\n"
    "}\n";

static CUfunction set, count_up;
static CUdeviceptr counter, value;
static CUstream stream;

static CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, CUfunction function, void **arguments) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                .kernel = {function, 1, 1, 1, 1, 1, 1, 0, arguments, NULL, NULL, NULL}};
    CUgraphNode node = NULL;
    QUIET(cuGraphAddNode(&node, graph, &after, NULL, after ? 1 : 0, &params));
    return node;
}

/* How often the counter was raised by a graph whose condition begins as `start`. */
static unsigned run(CUgraphConditionalNodeType type, unsigned size, unsigned counting_body, unsigned start,
                    int sets_before) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphConditionalHandle handle;
    CUgraphNode node, before = NULL;
    unsigned raised = 0;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphConditionalHandleCreate(&handle, graph, context, start, CU_GRAPH_COND_ASSIGN_DEFAULT));
    void *arguments[] = {&handle, &value};
    if (sets_before)
        before = add_kernel(graph, NULL, set, arguments);
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = handle, .type = type, .size = size, .ctx = context}};
    OK(cuGraphAddNode(&node, graph, &before, NULL, before ? 1 : 0, &params));
    CUgraph body = params.conditional.phGraph_out[counting_body];
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
    CUmodule own;
    OK(cuModuleLoadData(&own, count_down_ptx));
    OK(cuModuleGetFunction(&set, own, "set"));
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
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = handle, .type = CU_GRAPH_COND_TYPE_SWITCH, .size = 0}};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    params.conditional.size = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, other, NULL, NULL, 0, &params));
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    OK(cuGraphInstantiate(&exec, graph, 0));
    CUgraphExec second;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, graph, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&other, graph));
    return check_failed;
}
