// A program of rounds that launches one executable graph, updates it, and reads the program's memory through
// it: the graph is made again wherever the program is moved, with its later parameters.
#include <cuda.h>

#include "graphs.h"
#include "rounds.h"

enum { WORDS = 256 };

int main(int argc, char **argv) {
    start();
    CUdeviceptr data = allocate(WORDS * 4), gone = allocate(4 << 20);
    CUstream stream;
    CUevent event;
    CUgraph graph;
    CUgraphNode in, affine, out, record;
    CUgraphExec exec, stale;
    unsigned from[WORDS], to[WORDS], count = WORDS, factor = 1, term = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    CUDA_MEMCPY3D copy_in = copy_to_device(data, from, WORDS * 4);
    CUDA_MEMCPY3D copy_out = copy_to_host(to, data, WORDS * 4);
    void *arguments[] = {&data, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(kernel("affine"), 1, WORDS, arguments);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = gone, .elementSize = 4, .width = 1 << 20, .height = 1};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &copy_in, context));
    OK(cuGraphAddKernelNode(&affine, graph, &in, 1, &launch));
    OK(cuGraphAddMemcpyNode(&out, graph, &affine, 1, &copy_out, context));
    OK(cuGraphAddEventRecordNode(&record, graph, &out, 1, event));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    // A graph that may be launched no more, because what it fills is freed, keeps nobody from moving.
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&in, graph, NULL, 0, &fill, context));
    OK(cuGraphInstantiate(&stale, graph, 0));
    OK(cuMemFree(gone));
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &copy_in, context));
    OK(cuGraphAddKernelNode(&affine, graph, &in, 1, &launch));
    OK(cuGraphAddMemcpyNode(&out, graph, &affine, 1, &copy_out, context));
    OK(cuGraphAddEventRecordNode(&record, graph, &out, 1, event));
    for (int round = 0; round < rounds_wanted(argc, argv); round++) {
        CUgraphExecUpdateResultInfo info;
        begin_round(round);
        factor = 2 + (unsigned)round;
        term = 100 * (unsigned)round;
        for (unsigned i = 0; i < WORDS; i++)
            from[i] = i + (unsigned)round;
        OK(cuGraphKernelNodeSetParams(affine, &launch));
        OK(cuGraphExecUpdate(exec, graph, &info));
        OK(cuGraphLaunch(exec, stream));
        OK(cuEventSynchronize(event));
        OK(cuStreamSynchronize(stream));
        unsigned wrong = 0;
        for (unsigned i = 0; i < WORDS; i++)
            wrong += to[i] != from[i] * factor + term;
        EXPECT(wrong == 0);
    }
    OK(cuGraphExecDestroy(stale));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return check_failed;
}
