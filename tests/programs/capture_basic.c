// What a stream is given while it is captured becomes nodes: nothing runs before the graph is launched, forks
// and joins by events become edges, and each launch does all of it again.
#include "driver.h"

enum { WORDS = 256 };

static unsigned calls;

static void CUDA_CB called(void *unused) {
    (void)unused;
    calls++;
}

static CUgraphNodeType type_of(CUgraphNode node) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    QUIET(cuGraphNodeGetType(node, &type));
    return type;
}

int main(void) {
    start();
    CUdeviceptr a = allocate(WORDS * 4), b = allocate(WORDS * 4), word = allocate(8);
    unsigned count = WORDS, factor = 2, term = 1, *in = NULL, *out = NULL;
    CUstream origin, other;
    CUevent fork, join;
    CUgraph graph = NULL;
    CUgraphExec exec;
    OK(cuMemAllocHost((void **)&in, WORDS * 4));
    OK(cuMemAllocHost((void **)&out, WORDS * 4));
    OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    memset(out, 0, WORDS * 4);
    OK(cuMemsetD32(a, 0, WORDS));
    OK(cuMemsetD32(b, 0, WORDS));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream

    CUstreamCaptureStatus status;
    cuuint64_t id = 0, same = 0;
    OK(cuStreamIsCapturing(origin, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamIsCapturing(origin, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemcpyHtoDAsync(a, in, WORDS * 4, origin));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(cuStreamIsCapturing(other, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(LAUNCH(kernel("affine"), 1, WORDS, origin, &a, &count, &factor, &term));
    OK(cuMemsetD32Async(b, 5, WORDS, other));
    OK(LAUNCH(kernel("affine"), 1, WORDS, other, &b, &count, &factor, &term));
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(origin, join, 0));

    CUgraph partial;
    const CUgraphNode *nodes;
    size_t places = 0;
    OK(cuStreamGetCaptureInfo(origin, &status, &id, &partial, &nodes, NULL, &places));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id && partial && places == 2);
    EXPECT(type_of(nodes[0]) == CU_GRAPH_NODE_TYPE_KERNEL && type_of(nodes[1]) == CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuStreamGetCaptureInfo(other, &status, &same, NULL, NULL, NULL, NULL));
    EXPECT(id == same);
    CUgraphNode extra;
    OK(cuGraphAddEmptyNode(&extra, partial, nodes, places));
    OK(cuStreamUpdateCaptureDependencies(origin, &extra, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));

    OK(LAUNCH(kernel("add"), 1, WORDS, origin, &a, &b, &a, &count));
    OK(cuStreamWriteValue32(origin, word, 9, 0));
    OK(cuLaunchHostFunc(origin, called, NULL));
    OK(cuMemcpyDtoHAsync(out, b, WORDS * 4, origin));
    OK(cuStreamEndCapture(origin, &graph));
    OK(cuStreamIsCapturing(other, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE && graph != NULL);

    size_t total = 0, edges = 0, roots = 0;
    OK(cuGraphGetNodes(graph, NULL, &total));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    OK(cuGraphGetRootNodes(graph, NULL, &roots));
    EXPECT(total == 9 && edges == 9 && roots == 1);
    EXPECT(out[0] == 0 && calls == 0);

    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < WORDS; i++)
        in[i] = 0;
    OK(cuGraphLaunch(exec, origin));
    OK(cuGraphLaunch(exec, origin));
    OK(cuStreamSynchronize(origin));
    EXPECT(out[0] == 11 && out[WORDS - 1] == 11 && calls == 2);
    unsigned written = 0;
    OK(cuMemcpyDtoH(&written, word, 4));
    EXPECT(written == 9);

    /* none is launched into a captured stream */
    CUgraph outer = graph;
    CUgraphNode child;
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, other));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, other));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(other, &outer));
    EXPECT(outer == NULL);
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuGraphLaunch(exec, other)); /* another stream is none of the capture's */
    OK(cuStreamEndCapture(origin, &outer));
    OK(cuGraphDestroy(outer));
    OK(cuStreamSynchronize(other));
    EXPECT(calls == 3);

    /* into a graph that is there, behind a node of it */
    CUgraph same_graph;
    CUgraphNode sink;
    places = 1;
    OK(cuGraphGetNodes(graph, &sink, &places));
    OK(cuStreamBeginCaptureToGraph(origin, graph, &sink, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuLaunchHostFunc(origin, called, NULL));
    OK(cuStreamEndCapture(origin, &same_graph));
    EXPECT(same_graph == graph);
    OK(cuGraphGetNodes(graph, NULL, &total));
    EXPECT(total == 10);

    /* a fill of what is no memory can be captured, as cuDNN does; only its launch would fail */
    CUgraph nowhere;
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(128, 0, 65536, other));
    OK(cuStreamEndCapture(other, &nowhere));
    places = 1;
    OK(cuGraphGetNodes(nowhere, &child, &places));
    CUDA_MEMSET_NODE_PARAMS filled;
    OK(cuGraphMemsetNodeGetParams(child, &filled));
    EXPECT(filled.dst == 128 && filled.width == 65536);
    OK(cuGraphDestroy(nowhere));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(128, 0, 65536, other));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(a, 0, WORDS * 4 + 1, other));

    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return check_failed;
}
