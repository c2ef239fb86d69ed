// A graph of nodes of every plain kind runs in the order of its edges, each time it is launched, with the
// parameters that were set last; its nodes, edges and parameters can be read back.
#include "graphs.h"

enum { WORDS = 64 };

static unsigned calls;

static void CUDA_CB called(void *word) {
    calls++;
    *(unsigned *)word += 100;
}

static CUgraphNode kernel_node(CUgraph graph, CUgraphNode after, CUdeviceptr data, unsigned factor,
                               unsigned term) {
    unsigned count = WORDS;
    void *arguments[] = {&data, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS params = launch_of(kernel("affine"), 1, WORDS, arguments);
    CUgraphNode node = NULL;
    QUIET(cuGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &params));
    return node;
}

int main(void) {
    start();
    CUdeviceptr data = allocate(WORDS * 4), flag = allocate(8);
    unsigned host[WORDS] = {0}, expected = 0;
    CUgraph graph, captured;
    CUgraphExec exec;
    CUstream stream;
    CUevent event;
    CUgraphNode fill, first, second, copy, host_node, record, word, last;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, stream));
    OK(cuStreamEndCapture(stream, &captured));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    OK(cuGraphCreate(&graph, 0));

    CUDA_MEMSET_NODE_PARAMS zero = {.dst = data, .value = 3, .elementSize = 4, .width = WORDS, .height = 1};
    OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &zero, context));
    first = kernel_node(graph, fill, data, 2, 1);
    second = kernel_node(graph, first, data, 3, 5);
    CUDA_MEMCPY3D out = copy_to_host(host, data, WORDS * 4);
    OK(cuGraphAddMemcpyNode(&copy, graph, &second, 1, &out, context));
    CUDA_HOST_NODE_PARAMS function = {called, host};
    OK(cuGraphAddHostNode(&host_node, graph, &copy, 1, &function));
    OK(cuGraphAddEventRecordNode(&record, graph, &host_node, 1, event));
    CUstreamBatchMemOpParams write = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag, .value = 7}};
    CUDA_BATCH_MEM_OP_NODE_PARAMS words = {.ctx = context, .count = 1, .paramArray = &write};
    OK(cuGraphAddBatchMemOpNode(&word, graph, &host_node, 1, &words));
    words.count = 1u << 20; // more than there may be, of which one is there
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddBatchMemOpNode(&word, graph, &host_node, 1, &words));
    CUgraphNode both[] = {record, word};
    OK(cuGraphAddEmptyNode(&last, graph, both, 2));

    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    EXPECT(count == 8);
    CUgraphNode nodes[10], others[10];
    count = 10;
    OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 8 && nodes[0] == fill && nodes[7] == last && nodes[8] == NULL);
    count = 10;
    OK(cuGraphGetRootNodes(graph, nodes, &count));
    EXPECT(count == 1 && nodes[0] == fill);
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    EXPECT(count == 8);
    count = 10;
    OK(cuGraphGetEdges(graph, nodes, others, NULL, &count));
    EXPECT(nodes[0] == fill && others[0] == first);
    count = 10;
    OK(cuGraphNodeGetDependentNodes(host_node, nodes, NULL, &count));
    EXPECT(count == 2 && nodes[0] == record && nodes[1] == word);
    count = 1;
    OK(cuGraphNodeGetDependencies(last, nodes, NULL, &count));
    EXPECT(count == 1 && nodes[0] == record);
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(word, &type));
    EXPECT(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);

    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(host[0] == 0);
    for (int i = 0; i < 3; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    expected = (3 * 2 + 1) * 3 + 5;
    EXPECT(host[0] == expected + 100 && host[WORDS - 1] == expected && calls == 3);
    OK(cuEventQuery(event)); // it is what the graph has recorded
    OK(cuStreamWaitEvent(NULL, event, 0));
    unsigned flagged = 0;
    OK(cuMemcpyDtoH(&flagged, flag, 4));
    EXPECT(flagged == 7);

    /* what is changed in the graph shows in the next instance, what is changed in the instance at once */
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphKernelNodeGetParams(first, &params));
    EXPECT(params.blockDimX == WORDS && *(unsigned *)params.kernelParams[2] == 2);
    unsigned ten = 10;
    void *arguments[] = {params.kernelParams[0], params.kernelParams[1], &ten, params.kernelParams[3]};
    params.kernelParams = arguments;
    OK(cuGraphExecKernelNodeSetParams(exec, first, &params));
    ten = 11;
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(host[1] == (3 * 10 + 1) * 3 + 5);
    OK(cuGraphKernelNodeGetParams(first, &params));
    EXPECT(*(unsigned *)params.kernelParams[2] == 2);
    zero.value = 0;
    OK(cuGraphMemsetNodeSetParams(fill, &zero));
    OK(cuGraphMemsetNodeGetParams(fill, &zero));
    EXPECT(zero.value == 0 && zero.width == WORDS);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, graph, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(host[1] == (0 * 2 + 1) * 3 + 5);

    /* a disabled node does nothing */
    unsigned enabled = 1;
    OK(cuGraphNodeSetEnabled(exec, second, 0));
    OK(cuGraphNodeGetEnabled(exec, second, &enabled));
    EXPECT(enabled == 0);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(host[1] == 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, host_node, 0));

    /* a clone is a graph of its own, and so is a child graph */
    CUgraph clone, parent, inner;
    CUgraphNode child, in_clone;
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&in_clone, first, clone));
    EXPECT(in_clone != first);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&in_clone, first, graph));
    OK(cuGraphCreate(&parent, 0));
    CUgraphNode before;
    OK(cuGraphAddEmptyNode(&before, parent, NULL, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, &before, 1, clone));
    kernel_node(parent, child, data, 1, 9);
    OK(cuGraphChildGraphNodeGetGraph(child, &inner));
    EXPECT(inner != clone);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
    OK(cuGraphDestroy(clone));
    CUgraphExec whole;
    OK(cuGraphInstantiate(&whole, parent, 0));
    OK(cuGraphLaunch(whole, stream));
    OK(cuMemcpyDtoHAsync(host, data, sizeof host, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(host[5] == (0 * 2 + 1) * 3 + 5 + 9);

    /* the instances live on without their graphs, and a launch without its instance */
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(parent));
    OK(cuGraphLaunch(whole, stream));
    OK(cuGraphExecDestroy(whole));
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    EXPECT(calls == 8);
    return check_failed;
}
