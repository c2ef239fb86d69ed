// What NVIDIA's samples and guide do: a capture into the body of a conditional node is ended without asking
// for the graph, which the program has; memory of cuMemAlloc is given back with cuMemFreeAsync, behind the
// work that uses it.
#include "conditional.h"

static void ends_without_a_graph(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr data = allocate(4);
    unsigned value = 0;
    OK(cuGraphCreate(&graph, 0));
    CUgraph body = add_conditional(graph, NULL, add_condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1, &node)[0];
    OK(cuStreamBeginCaptureToGraph(stream, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(data, 7, 1, stream));
    OK(cuStreamEndCapture(stream, NULL));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, NULL));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamEndCapture(stream, NULL)); // nobody has the graph
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, data, 4));
    EXPECT(value == 7);
    OK(cuMemFree(data));
}

static void freed_in_order(CUstream stream) {
    enum { BYTES = 8 << 20, ROUNDS = 8 };
    size_t before = 0, after = 0, total;
    unsigned values[ROUNDS] = {0};
    OK(cuMemGetInfo(&before, &total));
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUdeviceptr data = allocate(BYTES);
        OK(cuMemsetD32Async(data, i + 1, BYTES / 4, stream));
        OK(cuMemcpyDtoHAsync(&values[i], data + BYTES - 4, 4, stream));
        OK(cuMemFreeAsync(data, stream));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(data, stream));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(data));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < ROUNDS; i++)
        EXPECT(values[i] == i + 1);
    OK(cuMemGetInfo(&after, &total));
    EXPECT(after == before);
}

int main(void) {
    CUstream stream;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ends_without_a_graph(stream);
    freed_in_order(stream);
    return check_failed;
}
