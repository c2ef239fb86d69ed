// What stands in the bodies of conditional nodes: further conditional nodes, child graphs, copies, what a
// stream was given while it was captured; and what may be changed of it, before and after it is made
// executable.
#include "conditional.h"
#include <stdbool.h>

static CUfunction set, count_up;
static CUdeviceptr counter, other, value, inner_value;
static CUstream stream;

static unsigned launched(CUgraphExec exec, CUdeviceptr where, unsigned from, unsigned inner) {
    unsigned raised = 0;
    QUIET(cuMemsetD32(counter, 0, 1));
    QUIET(cuMemsetD32(other, 0, 1));
    QUIET(cuMemsetD32(value, from, 1));
    QUIET(cuMemsetD32(inner_value, inner, 1));
    QUIET(cuStreamSynchronize(NULL));
    QUIET(cuGraphLaunch(exec, stream));
    QUIET(cuStreamSynchronize(stream));
    QUIET(cuMemcpyDtoH(&raised, where, 4));
    return raised;
}

// A loop that counts `value` down, in which a condition that its kernel counts down decides what is counted.
static void nested(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode loop, choice, node;
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle outer = add_condition(graph, 1);
    CUgraph body = *add_conditional(graph, NULL, outer, CU_GRAPH_COND_TYPE_WHILE, 1, &loop);
    CUgraphConditionalHandle inner = add_condition(body, 0);
    CUgraphNode sets = add_kernel(body, NULL, set, (void *[]){&outer, &value});
    CUgraphNode decides = add_kernel(body, sets, set, (void *[]){&inner, &inner_value});
    CUgraph *bodies = add_conditional(body, decides, inner, CU_GRAPH_COND_TYPE_IF, 2, &choice);
    CUgraph then = bodies[0], otherwise = bodies[1];
    CUgraphNode counts = add_kernel(then, NULL, count_up, (void *[]){&counter});
    add_kernel(otherwise, NULL, count_up, (void *[]){&other});

    CUgraph child;
    CUgraphNode inside;
    OK(cuGraphCreate(&child, 0));
    add_kernel(child, NULL, count_up, (void *[]){&other});
    OK(cuGraphAddChildGraphNode(&inside, otherwise, NULL, 0, child));
    OK(cuGraphDestroy(child));

    size_t count = 0;
    OK(cuGraphGetNodes(body, NULL, &count));
    EXPECT(count == 3);
    CUgraph found;
    OK(cuGraphNodeGetContainingGraph(choice, &found));
    EXPECT(found == body);
    CUgraphNodeParams params = {0};
    OK(cuGraphNodeGetParams(choice, &params));
    EXPECT(params.conditional.handle == inner && params.conditional.size == 2 &&
           params.conditional.phGraph_out[1] == otherwise);

    OK(cuGraphInstantiate(&exec, graph, 0));
    // counts of `value` 4, 3, 2, 1, 0: five rounds, of which `inner_value` 2, 1 count and 0 does not, and
    // then it is large
    EXPECT(launched(exec, counter, 4, 2) == 4);
    EXPECT(launched(exec, other, 4, 2) == 2);
    EXPECT(launched(exec, other, 0, 0) == 2); // again from the defaults
    EXPECT(launched(exec, counter, 2, 100) == 3);

    // One node of a body, then all of them by the graph itself.
    CUDA_KERNEL_NODE_PARAMS launch = {
        .func = count_up, 1, 1, 1, 1, 1, 1, 0, (void *[]){&other}, NULL, NULL, NULL};
    OK(cuGraphExecKernelNodeSetParams(exec, counts, &launch));
    EXPECT(launched(exec, counter, 4, 9) == 0);
    EXPECT(launched(exec, other, 4, 9) == 5);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, graph, &info));
    EXPECT(launched(exec, counter, 4, 9) == 5);

    // What cannot be changed, copied or shared.
    CALL(cuGraphNodeSetParams(choice, &params));
    CALL(cuGraphExecNodeSetParams(exec, choice, &params));
    CALL(cuGraphNodeSetEnabled(exec, choice, 0));
    CUgraph copy;
    CUgraphExec second;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&copy, graph));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, graph, 0));
    OK(cuGraphCreate(&copy, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, copy, NULL, 0, graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(body));
    // A conditional node stays what it is.
    CUgraphConditionalHandle foreign = add_condition(copy, 1);
    CUgraphNode alike;
    add_conditional(copy, NULL, foreign, CU_GRAPH_COND_TYPE_SWITCH, 1, &alike);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, copy, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == alike);
    OK(cuGraphDestroy(copy));

    // It goes on without its graph.
    OK(cuGraphDestroy(graph));
    EXPECT(launched(exec, counter, 3, 100) == 4);
    OK(cuGraphExecDestroy(exec));
}

// Made executable again, with other nodes than before.
static void again(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode first, second, before;
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle one = add_condition(graph, 1), two = add_condition(graph, 1);
    before = add_kernel(graph, NULL, count_up, (void *[]){&other});
    CUgraph body = *add_conditional(graph, before, one, CU_GRAPH_COND_TYPE_IF, 1, &first);
    add_kernel(body, NULL, count_up, (void *[]){&counter});
    CUgraph last = *add_conditional(graph, first, two, CU_GRAPH_COND_TYPE_IF, 1, &second);
    CUgraphNode counts = add_kernel(last, NULL, count_up, (void *[]){&counter});
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, counter, 0, 0) == 2);
    EXPECT(launched(exec, other, 0, 0) == 1);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec)); // while it may still run
    OK(cuStreamSynchronize(stream));

    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, counter, 0, 0) == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroyNode(first));
    OK(cuGraphDestroyNode(counts));
    add_kernel(last, NULL, count_up, (void *[]){&other});
    OK(cuGraphAddDependencies(graph, &before, &second, NULL, 1));
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, counter, 0, 0) == 0);
    EXPECT(launched(exec, other, 0, 0) == 2);
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));
}

// A loop that counts `where` up, and then by the condition that it begins with as often as it may.
static CUgraph loop(CUdeviceptr where, unsigned start, CUgraphNode *first, CUgraphNode *counts) {
    CUgraph graph;
    CUgraphNode node;
    QUIET(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle = add_condition(graph, start);
    *first = add_kernel(graph, NULL, count_up, (void *[]){&where});
    CUgraph body = *add_conditional(graph, *first, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    *counts = add_kernel(body, NULL, count_up, (void *[]){&where});
    add_kernel(body, *counts, set, (void *[]){&handle, &value});
    return graph;
}

// An executable graph becomes one that decides by values of its own.
static void updated(void) {
    CUgraphExec exec, second;
    CUgraphNode first, counts, ignored;
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = loop(counter, 1, &first, &counts);
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, counter, 3, 0) == 5);
    CUgraph changed = loop(other, 1, &ignored, &ignored);
    OK(cuMemsetD32(value, 5, 1));
    OK(cuMemsetD32(other, 0, 1));
    OK(cuStreamSynchronize(NULL));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecUpdate(exec, changed, &info)); // while it may still run
    OK(cuGraphDestroy(changed));
    OK(cuStreamSynchronize(stream));
    unsigned raised = 0;
    OK(cuMemcpyDtoH(&raised, counter, 4));
    EXPECT(raised == 12);
    EXPECT(launched(exec, counter, 3, 0) == 0);
    EXPECT(launched(exec, other, 3, 0) == 5);
    // its nodes are still those of the graph that it was made from
    CUDA_KERNEL_NODE_PARAMS launch = {
        .func = count_up, 1, 1, 1, 1, 1, 1, 0, (void *[]){&counter}, NULL, NULL, NULL};
    OK(cuGraphExecKernelNodeSetParams(exec, counts, &launch));
    EXPECT(launched(exec, counter, 3, 0) == 4);
    EXPECT(launched(exec, other, 3, 0) == 1);
    OK(cuGraphNodeSetEnabled(exec, first, 0));
    changed = loop(other, 0, &ignored, &ignored); // by default it does not begin
    OK(cuGraphExecUpdate(exec, changed, &info));
    EXPECT(launched(exec, other, 3, 0) == 0);
    OK(cuGraphNodeSetEnabled(exec, first, 1));
    EXPECT(launched(exec, other, 3, 0) == 1);
    // a value is of one executable graph
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, changed, 0));
    OK(cuGraphInstantiate(&second, graph, 0));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    EXPECT(launched(second, counter, 3, 0) == 5);
    EXPECT(launched(exec, other, 3, 0) == 1);
    OK(cuGraphExecDestroy(second));
    OK(cuGraphExecUpdate(exec, graph, &info));
    EXPECT(launched(exec, counter, 3, 0) == 5);
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(changed));
    OK(cuGraphExecDestroy(exec));
}

// What a graph whose conditional node was replaced cannot become leaves the graph to be made executable
// again.
static void updated_in_vain(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node, copying;
    CUgraphExecUpdateResultInfo info;
    unsigned *pinned, pageable[4] = {0};
    OK(cuMemHostAlloc((void **)&pinned, 16, 0));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = counter,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = pinned,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    CUgraphConditionalHandle handle = add_condition(graph, 1);
    CUgraph body = *add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    OK(cuGraphAddMemcpyNode(&copying, body, NULL, 0, &copy, context));
    add_kernel(body, copying, set, (void *[]){&handle, &value});
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, value, 3, 0) == ~0u);
    OK(cuGraphDestroyNode(node));
    handle = add_condition(graph, 1);
    body = *add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    copy.dstHost = pageable;
    OK(cuGraphAddMemcpyNode(&copying, body, NULL, 0, &copy, context));
    add_kernel(body, copying, set, (void *[]){&handle, &value});
    EXPECT(cuGraphExecUpdate(exec, graph, &info) != CUDA_SUCCESS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroyNode(copying));
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, value, 3, 0) == ~0u);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
}

// A graph that has lost its conditional node is one like others, also beside what was made of it before.
static void without_its_condition(void) {
    CUgraph graph;
    CUgraphExec before, exec, second;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle = add_condition(graph, 1);
    add_kernel(graph, NULL, count_up, (void *[]){&other});
    CUgraph body = *add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &node);
    add_kernel(body, NULL, count_up, (void *[]){&counter});
    OK(cuGraphInstantiate(&before, graph, 0));
    OK(cuGraphDestroyNode(node));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphInstantiate(&second, graph, 0));
    EXPECT(launched(before, counter, 0, 0) == 1 && launched(before, other, 0, 0) == 1);
    EXPECT(launched(exec, counter, 0, 0) == 0 && launched(exec, other, 0, 0) == 1);
    OK(cuGraphExecUpdate(exec, graph, &info));
    OK(cuGraphExecDestroy(exec));
    EXPECT(launched(second, other, 0, 0) == 1);
    OK(cuGraphDestroy(graph));
    EXPECT(launched(before, counter, 0, 0) == 1 && launched(second, other, 0, 0) == 1);
    OK(cuGraphExecDestroy(before));
    OK(cuGraphExecDestroy(second));
}

static void captured(void) {
    CUgraph graph, same;
    CUgraphExec exec;
    CUgraphNode node;
    CUstream side;
    unsigned *pinned, pageable[4] = {0};
    OK(cuMemHostAlloc((void **)&pinned, 16, 0));
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle = add_condition(graph, 1);
    CUgraph body = *add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    OK(cuStreamBeginCaptureToGraph(side, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyHtoDAsync(other, pinned, 4, side));
    OK(LAUNCH(count_up, 1, 1, side, &counter));
    OK(LAUNCH(count_up, 1, 1, side, &other));
    OK(cuMemcpyDtoHAsync(pinned, other, 4, side));
    OK(LAUNCH(set, 1, 1, side, &handle, &value));
    OK(cuStreamEndCapture(side, &same));
    EXPECT(same == body);
    *pinned = 40;
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, counter, 4, 0) == 5);
    EXPECT(*pinned == 45);
    EXPECT(launched(exec, other, 1, 0) == 47);
    EXPECT(*pinned == 47);
    OK(cuGraphExecDestroy(exec));

    // What a body may not hold is told when it is made executable.
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = counter,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = pageable,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    CUgraphNode wrong;
    OK(cuGraphAddMemcpyNode(&wrong, body, NULL, 0, &copy, context));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroyNode(wrong));
    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(cuGraphAddEventRecordNode(&wrong, body, NULL, 0, event));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroyNode(wrong));
    // Warp captures an allocation, looks for it in the body, and says what is wrong.
    CUdeviceptr memory = 0;
    OK(cuStreamBeginCaptureToGraph(side, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&memory, 64, side));
    OK(cuMemFreeAsync(memory, side));
    OK(cuStreamEndCapture(side, &same));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&exec, graph, 0));
    CUgraphConditionalHandle unused = add_condition(body, 1);
    EXPECT(unused != handle);
    CUDA_GRAPH_INSTANTIATE_PARAMS instantiate = {0};
    CALL(cuGraphInstantiateWithParams(&exec, graph, &instantiate));
    EXPECT(instantiate.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
    OK(cuStreamDestroy(side));
    OK(cuEventDestroy(event));
}

// Behind the launch, before the stream is there, the program frees the memory that a body uses, unloads the
// module and lets go of the graph.
static void gone_behind(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUstream side;
    CUmodule own;
    CUdeviceptr gate, pooled, plain;
    unsigned found[3] = {0};
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&gate, 4));
    OK(cuMemAlloc(&plain, 4));
    OK(cuMemAllocAsync(&pooled, 4, side));
    OK(cuMemsetD32Async(gate, 0, 1, side));
    OK(cuMemsetD32Async(pooled, 6, 1, side));
    OK(cuMemsetD32Async(value, 500, 1, side)); // the loop is long, for a driver may wait for it to unload
    OK(cuStreamSynchronize(side));
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle = add_condition(graph, 1);
    CUgraph body = *add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = plain, .value = 7, .elementSize = 4, .width = 1, .height = 1};
    CUDA_MEMCPY3D copies[2] = {{.srcDevice = pooled, .dstDevice = counter},
                               {.srcDevice = plain, .dstDevice = other}};
    OK(cuGraphAddMemsetNode(&node, body, NULL, 0, &fill, context));
    for (unsigned i = 0; i < 2; i++) {
        copies[i].srcMemoryType = copies[i].dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copies[i].WidthInBytes = 4;
        copies[i].Height = copies[i].Depth = 1;
        OK(cuGraphAddMemcpyNode(&node, body, &node, 1, &copies[i], context));
    }
    CUfunction last = set_kernel();
    OK(cuFuncGetModule(&own, last));
    add_kernel(body, node, last, (void *[]){&handle, &value});
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuStreamWaitValue32(side, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuGraphLaunch(exec, side));
    OK(cuMemFreeAsync(pooled, side));
    OK(cuMemFreeAsync(plain, side));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamWriteValue32(stream, gate, 1, 0));
    OK(cuModuleUnload(own));
    OK(cuStreamSynchronize(side));
    OK(cuMemcpyDtoH(&found[0], counter, 4));
    OK(cuMemcpyDtoH(&found[1], other, 4));
    OK(cuMemcpyDtoH(&found[2], value, 4));
    EXPECT(found[0] == 6 && found[1] == 7 && found[2] == ~0u);
    OK(cuMemFree(gate));
    OK(cuStreamDestroy(side));
}

// Values are of a context, and of no use when it is gone.
static void other_contexts(void) {
    CUcontext own;
    CUgraph graph;
    CUgraphConditionalHandle handle;
    OK(cuCtxCreate(&own, NULL, 0, device));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphConditionalHandleCreate(&handle, graph, NULL, 0, 0));
    CUgraphNode node;
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = handle, .type = CU_GRAPH_COND_TYPE_IF, .size = 1, .ctx = context}};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    params.conditional.ctx = own;
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    CUgraph elsewhere;
    OK(cuGraphCreate(&elsewhere, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuGraphConditionalHandleCreate(&handle, elsewhere, own, 0, 0)); // of one that is not current
    OK(cuCtxDestroy(own));
    OK(cuCtxSetCurrent(context));
    OK(cuGraphDestroy(elsewhere));
    OK(cuGraphDestroy(graph));
    OK(cuCtxSynchronize());
}

// A graph that ends while a stream is being captured into a body of it.
static void captured_body(bool fails) {
    CUgraph graph = NULL, made;
    CUgraphNode node;
    CUstream inner;
    CUstreamCaptureStatus status;
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle condition = add_condition(graph, 1);
    CUgraph body = *add_conditional(graph, NULL, condition, CU_GRAPH_COND_TYPE_IF, 1, &node);
    OK(cuStreamCreate(&inner, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCaptureToGraph(inner, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD32Async(counter, 1, 1, inner));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(node));
    if (fails) { // its own capture, and so the graph ends
        OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &made));
        OK(cuStreamIsCapturing(inner, &status));
        EXPECT(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(counter, 1, 1, inner));
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, inner, (void *[]){&counter}, NULL));
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(inner, &made));
    } else {
        OK(cuStreamEndCapture(inner, &made));
        OK(cuGraphDestroy(graph));
    }
    OK(cuMemsetD32Async(counter, 1, 1, inner));
    OK(cuStreamSynchronize(inner));
    OK(cuStreamDestroy(inner));
}

static CUgraph of_bodies(unsigned count, CUgraphNode *node) {
    CUgraph graph = NULL;
    QUIET(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle condition = add_condition(graph, 1);
    CUgraph *bodies = add_conditional(graph, NULL, condition, CU_GRAPH_COND_TYPE_SWITCH, count, node);
    for (unsigned i = 0; i < count; i++)
        add_kernel(bodies[i], NULL, count_up, (void *[]){i == 1 ? &counter : &other});
    return graph;
}

// As many bodies as before.
static void more_bodies(unsigned before, unsigned after) {
    CUgraphNode node, changed;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = of_bodies(before, &node), larger = of_bodies(after, &changed);
    OK(cuGraphInstantiate(&exec, graph, 0));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, larger, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == changed);
    EXPECT(launched(exec, counter, 0, 0) == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(larger));
}

// What fails leaves a value as it was; it goes nowhere without its graph's nodes.
static void refused(void) {
    const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUgraph graph = NULL, outer = NULL;
    CUgraphNode node, copy;
    CUgraphExec exec;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = other, .elementSize = 4, .width = 1, .height = 1};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&outer, 0));
    CUgraphConditionalHandle condition = add_condition(graph, 1);
    CUgraphNodeParams moved = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
                               .graph = {graph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, outer, NULL, NULL, 0, &moved));
    OK(cuGraphAddMemsetNode(&copy, graph, NULL, 0, &fill, context));
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = condition, .type = CU_GRAPH_COND_TYPE_IF, .size = 1, .ctx = context}};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, &copy, &edge, 1, &params));
    CUgraph body = *add_conditional(graph, copy, condition, CU_GRAPH_COND_TYPE_IF, 1, &node);
    add_kernel(body, NULL, count_up, (void *[]){&counter});
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(launched(exec, counter, 0, 0) == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(outer));
}

int main(void) {
    start();
    set = set_kernel();
    count_up = kernel("count_up");
    counter = allocate(4);
    other = allocate(4);
    value = allocate(4);
    inner_value = allocate(4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    nested();
    again();
    updated();
    updated_in_vain();
    without_its_condition();
    captured();
    captured_body(false);
    captured_body(true);
    refused();
    more_bodies(2, 64);
    more_bodies(64, 2);
    other_contexts();
    gone_behind();
    return check_failed;
}
