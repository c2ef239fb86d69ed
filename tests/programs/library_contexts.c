// A kernel of a library is launched in the context of its stream, whichever is current, with that context's
// variables; in the current one by the default streams.
#include "driver.h"

static const char bump_ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                               ".visible .global .u32 count = 0;\n"
                               ".visible .entry bump(.param .u64 to) {\n"
                               "  .reg .u64 %rd<3>; .reg .u32 %r<2>;\n"
                               "  ld.param.u64 %rd1, [to];\n"
                               "  mov.u64 %rd2, count;\n"
                               "  ld.global.u32 %r1, [%rd2];\n"
                               "  add.u32 %r1, %r1, 1;\n"
                               "  st.global.u32 [%rd2], %r1;\n"
                               "  st.global.u32 [%rd1], %r1;\n"
                               "  ret;\n"
                               "}\n";

static CUkernel bump;
static CUdeviceptr to;

static unsigned bumped(CUcontext current, CUstream stream) {
    unsigned value = 0;
    QUIET(cuCtxSetCurrent(current));
    OK(LAUNCH((CUfunction)bump, 1, 1, stream, &to));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, to, 4));
    return value;
}

// A node of a graph says in which context it works, or works in the one that is current when it is added.
static CUgraph graph_in(CUcontext named) {
    CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&to},
                                      .kern = bump,
                                      .ctx = named};
    CUgraph graph = NULL;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    return graph;
}

static void in_graphs(CUcontext own, CUstream stream) {
    const CUcontext named[] = {own, context, NULL};
    CUgraphExec execs[3];
    CUgraph graphs[3];
    unsigned values[3] = {0};
    CUgraphExecUpdateResultInfo info;
    for (int i = 0; i < 3; i++) {
        graphs[i] = graph_in(named[i]);
        OK(cuGraphInstantiate(&execs[i], graphs[i], 0));
        OK(cuGraphLaunch(execs[i], stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(&values[i], to, 4));
    }
    EXPECT(values[0] == 5 && values[1] == 5 && values[2] == 6);
    OK(cuGraphExecUpdate(execs[1], graphs[2], &info));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(execs[1], graphs[0], &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
    for (int i = 0; i < 3; i++)
        OK(cuGraphExecDestroy(execs[i]));
}

// A function is of one context; what names another one beside it is told so by the calls of CUDA 13.4.
static void mismatched(CUcontext own, CUfunction mine) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUgraph graph;
    CUgraphNode node;
    params.kernel.func = mine;
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = (void *[]){&to};
    params.kernel.ctx = own;
    OK(cuGraphCreate(&graph, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, &params));
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGraphNodeSetParams_v2(node, &params));
    params.kernel.ctx = context;
    OK(cuGraphNodeSetParams_v2(node, &params));
    OK(cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, &params));
    OK(cuGraphDestroy(graph));
}

// A graph outlives a context in which a node of it works, and can be launched again once that works
// elsewhere.
static void outlived(CUstream stream) {
    CUcontext there, next;
    CUgraph graph;
    CUgraphExec exec;
    unsigned value = 0;
    OK(cuCtxCreate(&there, NULL, CU_CTX_SCHED_AUTO, device));
    QUIET(cuCtxSetCurrent(context));
    graph = graph_in(there);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, to, 4));
    EXPECT(value == 1);
    OK(cuCtxDestroy(there));
    OK(cuCtxCreate(&next, NULL, CU_CTX_SCHED_AUTO, device)); // may be where the other one was
    QUIET(cuCtxSetCurrent(context));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(exec, stream));
    OK(cuGraphDestroy(graph));
    graph = graph_in(next);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, to, 4));
    EXPECT(value == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuCtxDestroy(next));
}

int main(void) {
    CUlibrary library;
    CUcontext own;
    CUstream ours, theirs;
    CUfunction mine;
    CUgraph graph;
    CUgraphExec exec;
    unsigned value = 0;
    start();
    to = allocate(4);
    OK(cuStreamCreate(&ours, CU_STREAM_NON_BLOCKING));
    OK(cuLibraryLoadData(&library, bump_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&bump, library, "bump"));
    OK(cuKernelGetFunction(&mine, bump));
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    EXPECT(bumped(context, ours) == 1);
    EXPECT(bumped(context, theirs) == 1);
    EXPECT(bumped(own, theirs) == 2);
    EXPECT(bumped(own, ours) == 2);
    EXPECT(bumped(own, NULL) == 3);
    EXPECT(bumped(context, NULL) == 3);
    EXPECT(bumped(context, theirs) == 4);
    FAILS(CUDA_ERROR_INVALID_HANDLE, LAUNCH(mine, 1, 1, theirs, &to)); // this one is of a context
    OK(LAUNCH(mine, 1, 1, ours, &to));
    OK(cuStreamSynchronize(ours));
    in_graphs(own, ours);
    mismatched(own, mine);

    printf("captured\n");
    OK(cuStreamBeginCapture(theirs, CU_STREAM_CAPTURE_MODE_RELAXED));
    CALL(LAUNCH((CUfunction)bump, 1, 1, theirs, &to));
    CALL(cuStreamEndCapture(theirs, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, theirs));
    OK(cuStreamSynchronize(theirs));
    OK(cuMemcpyDtoH(&value, to, 4));
    EXPECT(value == 6); // its stream's context has counted
    OK(cuGraphExecDestroy(exec));
    OK(cuCtxDestroy(own));
    EXPECT(bumped(context, ours) == 7);
    outlived(ours);
    OK(cuLibraryUnload(library));
    return check_failed;
}
