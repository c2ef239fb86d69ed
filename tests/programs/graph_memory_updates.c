// Executable graphs whose memory comes from nodes follow updates: by their own graph, whose memory stays, and
// by one that was captured anew, whose memory takes the place of theirs. Such a graph may move into another.
#include <stdbool.h>

#include "graphs.h"

enum { WORDS = 256, BYTES = WORDS * 4 };

static CUstream stream;
static unsigned host[WORDS];

// Allocates, fills, counts up and copies out; frees what it allocated, or leaves it to the program.
static CUgraph captured(size_t bytes, unsigned value, bool frees, CUdeviceptr *memory) {
    CUgraph graph = NULL;
    QUIET(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    QUIET(cuMemAllocAsync(memory, bytes, stream));
    QUIET(cuMemsetD32Async(*memory, value, WORDS, stream));
    QUIET(LAUNCH(kernel("count_up"), 1, 1, stream, memory));
    QUIET(cuMemcpyDtoHAsync(host, *memory, BYTES, stream));
    if (frees)
        QUIET(cuMemFreeAsync(*memory, stream));
    QUIET(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExecUpdateResult updated(CUgraphExec exec, CUgraph graph, CUresult *result) {
    CUgraphExecUpdateResultInfo info = {0};
    *result = cuGraphExecUpdate(exec, graph, &info);
    return info.result;
}

static unsigned launched(CUgraphExec exec) {
    memset(host, 0, sizeof host);
    QUIET(cuGraphLaunch(exec, stream));
    QUIET(cuStreamSynchronize(stream));
    return host[WORDS - 1] == host[0] - 1 ? host[WORDS - 1] : 0;
}

// A loop that captures what it does each time, and makes it executable once.
static void captured_anew(void) {
    CUdeviceptr memory;
    CUresult result;
    CUgraph last = captured(BYTES, 10, true, &memory);
    CUgraphExec exec, second;
    OK(cuGraphInstantiate(&exec, last, 0));
    EXPECT(launched(exec) == 10);
    EXPECT(updated(exec, last, &result) == CU_GRAPH_EXEC_UPDATE_SUCCESS && result == CUDA_SUCCESS);
    for (unsigned i = 1; i < 4; i++) {
        CUgraph next = captured(BYTES, 10 + i, true, &memory);
        EXPECT(updated(exec, next, &result) == CU_GRAPH_EXEC_UPDATE_SUCCESS && result == CUDA_SUCCESS);
        OK(cuGraphDestroy(last));
        EXPECT(launched(exec) == 10 + i);
        EXPECT(launched(exec) == 10 + i);
        last = next;
    }
    // There is one of such a graph at a time.
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, last, 0));
    CUgraph other = captured(BYTES, 20, true, &memory), larger = captured(2 * BYTES, 30, true, &memory);
    OK(cuGraphInstantiate(&second, other, 0));
    EXPECT(updated(exec, other, &result) == CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    EXPECT(result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT(updated(exec, larger, &result) == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    EXPECT(result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT(launched(second) == 20);
    EXPECT(launched(exec) == 13);
    OK(cuGraphExecDestroy(second));
    EXPECT(updated(exec, other, &result) == CU_GRAPH_EXEC_UPDATE_SUCCESS && result == CUDA_SUCCESS);
    EXPECT(launched(exec) == 20);
    OK(cuGraphInstantiate(&second, last, 0)); // which it no longer is
    EXPECT(launched(second) == 13);
    OK(cuGraphExecDestroy(second));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(last));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(larger));
}

// What a graph left to the program stays the program's behind an update.
static void left_to_the_program(void) {
    CUdeviceptr first, second;
    CUresult result;
    unsigned word = 0;
    CUgraph one = captured(BYTES, 40, false, &first), other = captured(BYTES, 50, false, &second);
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, one, 0));
    EXPECT(launched(exec) == 40);
    EXPECT(updated(exec, other, &result) == CU_GRAPH_EXEC_UPDATE_SUCCESS && result == CUDA_SUCCESS);
    OK(cuGraphDestroy(one));
    EXPECT(launched(exec) == 50);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
    OK(cuMemcpyDtoH(&word, first, 4));
    EXPECT(word == 41);
    OK(cuMemFree(first));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(first));
    OK(cuMemFree(second));
    EXPECT(launched(exec) == 50);
    OK(cuMemFreeAsync(second, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(other));
}

static CUgraph copying_out(CUdeviceptr from, void *to, size_t bytes) {
    CUdeviceptr memory;
    CUgraph graph = NULL;
    QUIET(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    QUIET(cuMemAllocAsync(&memory, BYTES, stream));
    QUIET(cuMemcpyDtoHAsync(to, from, bytes, stream));
    QUIET(cuMemFreeAsync(memory, stream));
    QUIET(cuStreamEndCapture(stream, &graph));
    return graph;
}

// An update may need memory where the graph runs. Without it the graph does what it did.
static void without_memory(void) {
    enum { MOST = 256, LARGE = 8 << 20 };
    static CUdeviceptr blocks[MOST];
    static unsigned char back[LARGE];
    CUdeviceptr source = allocate(LARGE);
    CUgraph small = copying_out(source, back, BYTES), large = copying_out(source, back, LARGE);
    CUgraphExec exec;
    CUresult result;
    unsigned taken = 0;
    OK(cuMemsetD8Async(source, 7, LARGE, stream));
    OK(cuGraphInstantiate(&exec, small, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    for (size_t size = (size_t)1 << 30; size >= 1 << 20; size /= 2)
        while (taken < MOST && cuMemAlloc(&blocks[taken], size) == CUDA_SUCCESS)
            taken++;
    EXPECT(taken < MOST);
    updated(exec, large, &result);
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    memset(back, 0, sizeof back);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(back[BYTES - 1] == 7 && (back[LARGE - 1] == 7) == (result == CUDA_SUCCESS));
    while (taken > 0)
        QUIET(cuMemFree(blocks[--taken]));
    EXPECT(updated(exec, large, &result) == CU_GRAPH_EXEC_UPDATE_SUCCESS && result == CUDA_SUCCESS);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(back[LARGE - 1] == 7);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(small));
    OK(cuGraphDestroy(large));
    OK(cuMemFree(source));
}

// A graph with memory is a child graph if it moves; it is no more made executable by itself then.
static void moved(void) {
    CUdeviceptr memory;
    CUresult result;
    CUgraph child = captured(BYTES, 60, true, &memory), busy = captured(BYTES, 61, false, &memory), parent;
    CUgraphNode node;
    CUgraphExec exec, second;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
                                .graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE}};
    CUgraphNodeParams more = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    more.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    more.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    more.alloc.bytesize = BYTES;
    OK(cuGraphCreate(&parent, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, parent, NULL, NULL, 0, &params));
    OK(cuGraphInstantiate(&exec, busy, 0));
    params.graph = (CUDA_CHILD_GRAPH_NODE_PARAMS){busy, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, parent, NULL, NULL, 0, &params));
    OK(cuGraphExecDestroy(exec));
    params.graph = (CUDA_CHILD_GRAPH_NODE_PARAMS){child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    OK(cuGraphAddNode(&node, parent, NULL, NULL, 0, &params));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, child, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, child, NULL, NULL, 0, &more));
    OK(cuGraphInstantiate(&exec, parent, 0));
    EXPECT(launched(exec) == 60);
    EXPECT(launched(exec) == 60);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, parent, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&child, parent));
    EXPECT(updated(exec, parent, &result) == CU_GRAPH_EXEC_UPDATE_SUCCESS && result == CUDA_SUCCESS);
    updated(exec, child, &result);
    EXPECT(result == CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr its_own;
    CUgraph alike = captured(BYTES, 62, true, &its_own); // it stays its own graph's, so it is in no other
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphExecChildGraphNodeSetParams(exec, node, alike));
    OK(cuGraphDestroy(alike));
    EXPECT(launched(exec) == 60);
    params.graph = (CUDA_CHILD_GRAPH_NODE_PARAMS){busy, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    OK(cuGraphAddNode(&node, parent, &node, NULL, 1, &params));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, parent, 0));
    EXPECT(launched(exec) == 61);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream)); // the second one has not freed its memory
    OK(cuMemFree(memory));
    EXPECT(launched(exec) == 61);
    OK(cuMemFree(memory));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(parent));
}

int main(void) {
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    captured_anew();
    left_to_the_program();
    without_memory();
    moved();
    return check_failed;
}
