// Calls about graphs with what is null, foreign, destroyed, of another kind or impossible fail as CUDA has
// it, and change nothing.
#include "graphs.h"
#include <time.h>

static _Atomic unsigned destroyed, refused;

static void CUDA_CB destroy(void *unused) {
    (void)unused;
    refused += cuCtxSynchronize() == CUDA_ERROR_NOT_PERMITTED;
    destroyed++;
}

static void CUDA_CB nothing(void *unused) {
    (void)unused;
}

// An edge is what its data says, too: one with data is not the plain one, and is removed as what it is. Of
// several edges all are added or removed, or none.
static void edges_with_data(void) {
    const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    unsigned count = 1, factor = 1, term = 0;
    CUdeviceptr word = allocate(4);
    void *arguments[] = {&word, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(kernel("affine"), 1, 1, arguments);
    CUgraph graph;
    CUgraphNode first, second;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &launch));
    OK(cuGraphAddKernelNode(&second, graph, NULL, 0, &launch));
    OK(cuGraphAddDependencies(graph, &first, &second, &early, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &first, &second, NULL, 1));
    OK(cuGraphRemoveDependencies(graph, &first, &second, &early, 1));
    OK(cuGraphAddDependencies(graph, &first, &second, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &first, &second, &early, 1));
    OK(cuGraphRemoveDependencies(graph, &first, &second, NULL, 1));

    const CUgraphEdgeData all[] = {{0}, early, early};
    const CUgraphNode from[] = {first, first, first}, to[] = {second, second, second};
    size_t number = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, from, to, all, 3)); // one of them twice
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &number));
    EXPECT(number == 0);
    OK(cuGraphAddDependencies(graph, from, to, all, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, from, to, &early, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, from, to, all, 3));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &number));
    EXPECT(number == 2);
    CUgraphNodeParams behind = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    behind.kernel.func = launch.func;
    behind.kernel.gridDimX = behind.kernel.gridDimY = behind.kernel.gridDimZ = 1;
    behind.kernel.blockDimX = behind.kernel.blockDimY = behind.kernel.blockDimZ = 1;
    behind.kernel.kernelParams = arguments;
    CUgraphNode third;
    CUgraphExec exec;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&third, graph, from, all, 3, &behind));
    behind.reserved0[2] = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&third, graph, from, all, 2, &behind));
    behind.reserved0[2] = 0;
    OK(cuGraphAddNode(&third, graph, from, all, 2, &behind));
    behind.reserved2 = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetParams(third, &behind));
    OK(cuGraphNodeGetDependencies(third, NULL, NULL, &number));
    EXPECT(number == 2);
    term = 2;
    OK(cuGraphKernelNodeSetParams(third, &launch));
    OK(cuGraphInstantiate(&exec, graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecNodeSetParams(exec, third, &behind));
    OK(cuMemsetD32(word, 5, 1));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(&number, word, 4));
    EXPECT((unsigned)number == 7);
    OK(cuGraphExecDestroy(exec));

    CUDA_MEMSET_NODE_PARAMS fill = {.dst = word, .elementSize = 4, .width = 1, .height = 1};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = {word, 4, 0, 4, 1, 1, context}};
    OK(cuGraphAddMemsetNode(&second, graph, NULL, 0, &fill, context)); // kernels alone begin early
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &first, &second, &early, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&second, graph, &first, &early, 1, &params));
    OK(cuGraphDestroy(graph));
}

// What cannot be uploaded where it should be is not made executable either: its memory is free for another
// one.
static void upload_where_work_is_captured(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = 4096};
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraph graph, captured;
    CUgraphExec exec = NULL;
    CUgraphNode node;
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &memory));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                         .hUploadStream = stream};
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphInstantiateWithParams(&exec, graph, &how));
    EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_ERROR && exec == NULL);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &captured));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuGraphInstantiateWithParams(&exec, graph, &how));
    EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

// A graph with an event that was destroyed runs not even in part, wherever the event stands.
static void destroyed_events(void) {
    CUdeviceptr word = allocate(4);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = word, .value = 9, .elementSize = 4, .width = 1, .height = 1};
    unsigned value;
    for (int records = 0; records < 2; records++) {
        CUgraph graph, child;
        CUgraphExec exec, another;
        CUgraphExecUpdateResultInfo info;
        CUgraphNode first, node;
        CUevent event;
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        OK(cuMemsetD32(word, 4, 1));
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphCreate(&child, 0));
        if (records)
            OK(cuGraphAddEventRecordNode(&node, child, NULL, 0, event));
        else
            OK(cuGraphAddEventWaitNode(&node, child, NULL, 0, event));
        OK(cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, context));
        OK(cuGraphAddChildGraphNode(&node, graph, &first, 1, child));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuEventDestroy(event));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(exec, NULL));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphInstantiate(&another, graph, 0));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphExecUpdate(exec, graph, &info));
        EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR);
        OK(cuMemcpyDtoH(&value, word, 4));
        EXPECT(value == 4);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(child));
        OK(cuGraphDestroy(graph));
    }
    OK(cuMemFree(word));
}

// Nor is it made executable, or made another one, or launched, with a kernel whose module is gone.
static void unloaded_kernels(void) {
    CUdeviceptr word = allocate(4);
    CUgraph graphs[2], child;
    CUgraphExec exec, another, stale;
    CUgraphExecUpdateResultInfo info;
    CUgraphNode node;
    CUmodule own;
    CUfunction functions[2] = {kernel("count_up")};
    OK(cuModuleLoadData(&own, kernels_ptx));
    OK(cuModuleGetFunction(&functions[1], own, "count_up"));
    for (int i = 0; i < 2; i++) {
        CUDA_KERNEL_NODE_PARAMS launch = launch_of(functions[i], 1, 1, (void *[]){&word});
        OK(cuGraphCreate(&graphs[i], 0));
        OK(cuGraphCreate(&child, 0));
        OK(cuGraphAddKernelNode(&node, child, NULL, 0, &launch));
        OK(cuGraphAddChildGraphNode(&node, graphs[i], NULL, 0, child));
        OK(cuGraphDestroy(child));
    }
    OK(cuGraphInstantiate(&exec, graphs[0], 0));
    OK(cuGraphInstantiate(&stale, graphs[1], 0));
    OK(cuGraphLaunch(stale, NULL));
    OK(cuCtxSynchronize());
    OK(cuModuleUnload(own));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(stale, NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(stale));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphInstantiate(&another, graphs[1], 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphExecUpdate(exec, graphs[1], &info));
    OK(cuMemsetD32(word, 4, 1));
    OK(cuGraphLaunch(exec, NULL)); // it is what it was
    unsigned value;
    OK(cuMemcpyDtoH(&value, word, 4));
    EXPECT(value == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graphs[0]));
    OK(cuGraphDestroy(graphs[1]));
    OK(cuMemFree(word));
}

// What is not finished is neither made executable nor does it change what is.
static void update_while_captured(void) {
    CUgraphExecUpdateResultInfo info;
    CUgraph graph, captured;
    CUgraphExec exec;
    CUgraphNode node;
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuStreamBeginCaptureToGraph(stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecUpdate(exec, graph, &info));
    OK(cuStreamEndCapture(stream, &captured));
    OK(cuGraphExecUpdate(exec, graph, &info));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

// A place for no node is no question for their number: that is asked without a place.
static void lists_without_room(void) {
    const CUgraphNode mark = (CUgraphNode)1;
    CUgraphNode first, second, one = mark, other = mark;
    CUgraph graph;
    size_t number = 0;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&second, graph, &first, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, &one, &number));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetRootNodes(graph, &one, &number));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetEdges(graph, &one, &other, NULL, &number));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetDependencies(second, &one, NULL, &number));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetDependentNodes(first, &one, NULL, &number));
    EXPECT(number == 0 && one == mark && other == mark);
    number = 1;
    OK(cuGraphGetNodes(graph, &one, &number));
    EXPECT(number == 1 && one == first);
    OK(cuGraphDestroy(graph));
}

int main(void) {
    start();
    destroyed_events();
    unloaded_kernels();
    update_while_captured();
    CUdeviceptr data = allocate(256);
    CUgraph graph, other, clone;
    CUgraphExec exec = NULL;
    CUgraphNode a, b, c, far, node;
    size_t count = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(NULL));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    OK(cuGraphAddEmptyNode(&far, other, NULL, 0));

    printf("edges\n");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(NULL, graph, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, graph, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, graph, &far, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, graph, ((CUgraphNode[]){a, a}), 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &b, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &a, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &far, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, NULL, &b, NULL, 1));
    OK(cuGraphAddDependencies(graph, NULL, NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &b, &a, NULL, 1));
    OK(cuGraphRemoveDependencies(graph, &a, &b, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &a, &b, NULL, 1));
    CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                    .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &b, &programmatic, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetEdges(graph, &a, NULL, NULL, &count));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, NULL, NULL));
    OK(cuGraphAddDependencies(graph, &a, &b, NULL, 1));
    OK(cuGraphAddDependencies(graph, &b, &a, NULL, 1));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, graph, &how));
    EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    OK(cuGraphRemoveDependencies(graph, &b, &a, NULL, 1));
    cuuint64_t kept = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)); // no stream is told
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuGraphInstantiateWithFlags(&exec, graph,
                                      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                          CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    how.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    OK(cuGraphInstantiateWithParams(&exec, graph, &how));
    OK(cuGraphExecGetFlags(exec, &kept));
    EXPECT(kept == CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    OK(cuGraphExecDestroy(exec));

    lists_without_room();
    edges_with_data();
    upload_where_work_is_captured();

    printf("parameters\n");
    CUDA_KERNEL_NODE_PARAMS kernel_params = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&c, graph, NULL, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphAddKernelNode(&c, graph, NULL, 0, &kernel_params));
    kernel_params.func = kernel("count_up");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&c, graph, NULL, 0, &kernel_params));
    kernel_params.blockDimX = kernel_params.blockDimY = kernel_params.blockDimZ = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&c, graph, NULL, 0, &kernel_params));
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = data, .elementSize = 4, .width = 64, .height = 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&c, graph, NULL, 0, NULL, context));
    fill.elementSize = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&c, graph, NULL, 0, &fill, context));
    fill.elementSize = 4, fill.width = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&c, graph, NULL, 0, &fill, context));
    fill.width = 65;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&c, graph, NULL, 0, &fill, context));
    fill.width = 8, fill.height = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&c, graph, NULL, 0, &fill, context));
    fill.height = 2, fill.pitch = 16;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&c, graph, NULL, 0, &fill, context));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = data,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = data + 128,
                          .Height = 1,
                          .Depth = 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&c, graph, NULL, 0, &copy, context));
    copy.WidthInBytes = 129;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&c, graph, NULL, 0, &copy, context));
    copy.WidthInBytes = 64, copy.srcPitch = 32;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&c, graph, NULL, 0, &copy, context));
    copy.srcPitch = 0, copy.dstLOD = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&c, graph, NULL, 0, &copy, context));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddHostNode(&c, graph, NULL, 0, &(CUDA_HOST_NODE_PARAMS){0}));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEventRecordNode(&c, graph, NULL, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&c, graph, NULL, 0, NULL));
    OK(cuGraphGetNodes(graph, NULL, &count));
    EXPECT(count == 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(a, &copy));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(a, &kernel_params));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeSetParams(a, &fill));

    printf("instances\n");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 1 << 20));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(NULL, graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphUpload(NULL, NULL));
    CUDA_HOST_NODE_PARAMS host = {nothing, NULL};
    OK(cuGraphAddHostNode(&c, graph, &b, 1, &host));
    fill = (CUDA_MEMSET_NODE_PARAMS){
        .dst = data, .value = 1, .elementSize = 1, .width = 4, .height = 2, .pitch = 16};
    OK(cuGraphAddMemsetNode(&node, graph, &c, 1, &fill, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    cuuint64_t flags = 1;
    OK(cuGraphExecGetFlags(exec, &flags));
    EXPECT(flags == 0);
    fill.value = 2;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, context));
    fill.width = 8;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, node, &fill, context));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecHostNodeSetParams(exec, node, &host));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecHostNodeSetParams(exec, far, &host));
    OK(cuGraphUpload(exec, NULL));
    OK(cuGraphLaunch(exec, NULL));
    unsigned char bytes[32];
    OK(cuMemcpyDtoH(bytes, data, sizeof bytes));
    EXPECT(bytes[0] == 2 && bytes[3] == 2 && bytes[16] == 2);

    CUgraphExecUpdateResultInfo info;
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecUpdate(exec, graph, NULL));
    OK(cuGraphClone(&clone, graph));
    CUgraphNode in_clone;
    OK(cuGraphNodeFindInClone(&in_clone, b, clone));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, in_clone, 0));
    CUgraphNode first;
    OK(cuGraphNodeFindInClone(&first, a, clone));
    OK(cuGraphRemoveDependencies(clone, &first, &in_clone, NULL, 1));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, clone, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED &&
           info.errorNode != in_clone); /* an exit */

    printf("ends\n");
    OK(cuGraphDestroyNode(c));
    OK(cuGraphLaunch(exec, NULL));
    CUuserObject object;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuUserObjectCreate(&object, NULL, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuUserObjectCreate(&object, NULL, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&object, NULL, destroy, 1, 0));
    OK(cuUserObjectCreate(&object, NULL, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(clone, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphRetainUserObject(other, object, 2, 0));
    OK(cuGraphReleaseUserObject(other, object, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(graph, object, 1));
    OK(cuGraphDestroy(clone));
    EXPECT(destroyed == 0);
    OK(cuGraphDestroy(other));
    /* CUDA does not say in which thread; a driver without user objects never does */
    for (int tries = 0; destroyed == 0 && tries < 60000; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    EXPECT(destroyed == 1 && refused == 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDebugDotPrint(graph, NULL, 0));
    FAILS(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(graph, "", 0));
    OK(cuGraphDestroy(graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, NULL, &count));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphExecDestroy(exec));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(exec));
    OK(cuCtxSynchronize());
    return check_failed;
}
