// Two streams are captured: copies from and to the program's memory, fills, kernels, a fork and a join.
// Nothing runs before the graph is launched, and each launch reads and writes the program's memory anew.
#include "driver.h"

enum { WORDS = 256 };

int main(void) {
    start();
    CUdeviceptr a = allocate(WORDS * 4), b = allocate(WORDS * 4);
    unsigned count = WORDS, factor = 2, term = 1, *in = NULL, *out = NULL, pageable[WORDS] = {0};
    CUstream origin, other;
    CUevent fork, join;
    CUgraph graph = NULL, same = NULL;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    cuuint64_t id = 0, id_of_other = 0;
    size_t total = 0, places = 0;
    const CUgraphNode *nodes;
    CUgraphNode extra;
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

    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyHtoDAsync(a, in, WORDS * 4, origin));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(LAUNCH(kernel("affine"), 1, WORDS, origin, &a, &count, &factor, &term));
    factor = 3; // parameters were copied
    OK(cuMemsetD32Async(b, 5, WORDS, other));
    OK(LAUNCH(kernel("affine"), 1, WORDS, other, &b, &count, &factor, &term));
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(origin, join, 0));
    OK(cuStreamGetCaptureInfo(origin, &status, &id, &graph, &nodes, NULL, &places));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && graph != NULL && places == 2);
    OK(cuStreamGetCaptureInfo(other, &status, &id_of_other, NULL, NULL, NULL, NULL));
    EXPECT(id == id_of_other);
    OK(cuGraphAddEmptyNode(&extra, graph, nodes, places));
    CUgraphNode twice[] = {extra, extra};
    const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamUpdateCaptureDependencies(origin, twice, NULL, 2, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamUpdateCaptureDependencies(origin, &extra, &early, 1, 0));
    OK(cuStreamUpdateCaptureDependencies(origin, &extra, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuMemcpyDtoHAsync(out, a, WORDS * 4, origin));
    OK(cuMemcpyDtoHAsync(pageable, b, WORDS * 4, origin));
    OK(cuStreamEndCapture(origin, &graph));
    OK(cuStreamIsCapturing(other, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE && graph != NULL);
    OK(cuGraphGetNodes(graph, NULL, &total));
    EXPECT(total == 7);
    EXPECT(out[0] == 0 && pageable[0] == 0);

    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 1; round < 4; round++) {
        for (unsigned i = 0; i < WORDS; i++)
            in[i] = round * 100 + i;
        QUIET(cuGraphLaunch(exec, round == 2 ? other : origin));
        QUIET(cuStreamSynchronize(round == 2 ? other : origin));
        EXPECT(out[0] == round * 200 + 1 && out[9] == round * 200 + 19);
        EXPECT(pageable[0] == 16 && pageable[WORDS - 1] == 16);
    }

    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuStreamBeginCaptureToGraph(origin, graph, twice, NULL, 2, CU_STREAM_CAPTURE_MODE_RELAXED));
    // a stream that comes in and is destroyed, as Warp's temporary ones are, leaves its work
    OK(cuStreamBeginCaptureToGraph(origin, graph, &extra, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(cuMemsetD32Async(b, 5, WORDS, other));
    OK(cuEventRecord(join, other));
    OK(cuStreamDestroy(other));
    OK(cuStreamIsCapturing(origin, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamWaitEvent(origin, join, 0));
    OK(cuStreamEndCapture(origin, &same));
    EXPECT(same == graph);
    OK(cuGraphGetNodes(graph, NULL, &total));
    EXPECT(total == 8);
    // what fails takes the graph with it, also one that was there before
    OK(cuStreamBeginCaptureToGraph(origin, graph, &extra, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, origin));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &same));
    EXPECT(same == NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, NULL, &total));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));
    return check_failed;
}
