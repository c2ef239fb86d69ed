// A program of rounds that launches a graph with nodes of the kinds that need this process or memory of their
// own: functions, copies beside them, an allocation, and words of memory. It is made again wherever the
// program is moved, also with what was changed since.
#include "graphs.h"
#include "rounds.h"

enum { WORDS = 256 };

static unsigned *host, calls, other_calls;

static void CUDA_CB called(void *word) {
    calls++;
    *(unsigned *)word += 1000;
}

static void CUDA_CB other(void *word) {
    other_calls++;
    *(unsigned *)word += 2000;
}

static CUDA_MEMCPY3D copy(CUdeviceptr to, CUdeviceptr from) {
    return (CUDA_MEMCPY3D){.srcMemoryType = from ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .srcHost = host,
                           .srcDevice = from,
                           .dstMemoryType = to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .dstHost = host,
                           .dstDevice = to,
                           .WidthInBytes = WORDS * 4,
                           .Height = 1,
                           .Depth = 1};
}

int main(int argc, char **argv) {
    start();
    CUdeviceptr data = allocate(WORDS * 4), word = allocate(8);
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode allocation, fill, affine, out, function, in, write, last;
    unsigned count = WORDS, factor = 2, term = 1;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    // an H200's driver reads pageable memory before the nodes that come before the copy
    OK(cuMemAllocHost((void **)&host, WORDS * 4));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = WORDS * 4};
    OK(cuGraphAddMemAllocNode(&allocation, graph, NULL, 0, &memory));
    CUDA_MEMSET_NODE_PARAMS five = {
        .dst = memory.dptr, .value = 5, .elementSize = 4, .width = WORDS, .height = 1};
    OK(cuGraphAddMemsetNode(&fill, graph, &allocation, 1, &five, context));
    void *arguments[] = {&memory.dptr, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(kernel("affine"), 1, WORDS, arguments);
    OK(cuGraphAddKernelNode(&affine, graph, &fill, 1, &launch));
    CUDA_MEMCPY3D to_host = copy(0, memory.dptr), from_host = copy(data, 0);
    OK(cuGraphAddMemcpyNode(&out, graph, &affine, 1, &to_host, context));
    CUDA_HOST_NODE_PARAMS first = {called, &host[3]}, second = {other, &host[3]};
    OK(cuGraphAddHostNode(&function, graph, &out, 1, &first));
    OK(cuGraphAddMemcpyNode(&in, graph, &function, 1, &from_host, context));
    CUstreamBatchMemOpParams seven = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = word, .value = 7}};
    CUDA_BATCH_MEM_OP_NODE_PARAMS words = {.ctx = context, .count = 1, .paramArray = &seven};
    OK(cuGraphAddBatchMemOpNode(&write, graph, &in, 1, &words));
    OK(cuGraphAddMemFreeNode(&last, graph, &in, 1, memory.dptr));
    OK(cuGraphInstantiate(&exec, graph, 0));
    int rounds = rounds_wanted(argc, argv);
    for (int round = 0; round < rounds; round++) {
        unsigned copied[WORDS] = {0}, flag = 0;
        begin_round(round);
        seven.writeValue.value = 7 + (unsigned)round;
        OK(cuGraphExecHostNodeSetParams(exec, function, round % 2 ? &second : &first));
        OK(cuGraphExecBatchMemOpNodeSetParams(exec, write, &words));
        memset(host, 0, WORDS * 4);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(copied, data, sizeof copied));
        OK(cuMemcpyDtoH(&flag, word, 4));
        EXPECT(copied[3] == (round % 2 ? 2011u : 1011u) && copied[4] == 11 && host[WORDS - 1] == 11);
        EXPECT(flag == 7 + (unsigned)round);
    }
    EXPECT(calls == (unsigned)(rounds + 1) / 2 && other_calls == (unsigned)rounds / 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return check_failed;
}
