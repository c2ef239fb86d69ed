// A fill of a graph may be at an address where nothing is, for as long as it does not run: added, captured,
// made executable. In an executable graph no fill comes there from memory. The legacy stream says first that
// nothing is there, and then that it may not be used beside a capture.
//
// device: sim: what a GPU's driver says of such addresses is not known
#include "driver.h"

static const CUdeviceptr nowhere[] = {0x10, 0x1000, 0xdead0000, 0x7ffe00000000, 0xfffffffffffffff0};

static CUDA_MEMSET_NODE_PARAMS four_words(CUdeviceptr at) {
    return (CUDA_MEMSET_NODE_PARAMS){.dst = at, .elementSize = 4, .value = 1, .width = 4, .height = 1};
}

int main(void) {
    CUstream stream, blocking;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        CUDA_MEMSET_NODE_PARAMS params = four_words(nowhere[i]);
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuMemsetD2D8Async(nowhere[i], 16, 1, 4, 4, stream));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(nowhere[1], 1, 4, NULL));
    OK(cuStreamEndCapture(blocking, &graph));
    OK(cuGraphDestroy(graph));

    CUdeviceptr words = allocate(16);
    CUDA_MEMSET_NODE_PARAMS params = four_words(words), other = four_words(nowhere[1]);
    CUgraphExecUpdateResultInfo info;
    unsigned word = 0;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, node, &other, context));
    OK(cuGraphMemsetNodeSetParams(node, &other));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &info));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&word, words, 4));
    EXPECT(word == 1);
    OK(cuGraphExecDestroy(exec));

    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    return check_failed;
}
