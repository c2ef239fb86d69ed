// Memory that a graph allocates has its address before the graph runs, can be used by its other nodes and, if
// the graph does not free it, by the program, until that frees it.
#include "driver.h"

enum { WORDS = 1024 };

static cuuint64_t attribute(CUgraphMem_attribute which) {
    cuuint64_t value = 1;
    QUIET(cuDeviceGetGraphMemAttribute(device, which, &value));
    return value;
}

static CUDA_MEM_ALLOC_NODE_PARAMS parameters(size_t bytes) {
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = bytes};
}

// What was captured and thrown away is nobody's address: freed late, it does not free what came after it.
static void thrown_away(CUstream stream, size_t bytes) {
    CUdeviceptr gone = 0, next = 0, again = 0;
    CUgraph graph;
    unsigned word = 0;
    QUIET(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    QUIET(cuMemAllocAsync(&gone, bytes, stream));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(cuMemAllocAsync(&next, bytes, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(gone, stream));
    QUIET(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    QUIET(cuMemAllocAsync(&gone, bytes, stream));
    QUIET(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemAlloc(&again, bytes));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(gone));
    OK(cuMemsetD32Async(next, 9, 1, stream));
    OK(cuMemcpyDtoHAsync(&word, next, sizeof word, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(word == 9);
    OK(cuMemFreeAsync(next, stream));
    OK(cuMemFree(again));
}

int main(void) {
    start();
    CUstream stream;
    CUgraph graph, captured, other;
    CUgraphExec exec, second;
    CUgraphNode allocation, fill, copy, free_node, child;
    static unsigned host[WORDS];
    unsigned zero = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    /* allocated, used and freed within */
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS params = parameters(sizeof host);
    OK(cuGraphAddMemAllocNode(&allocation, graph, NULL, 0, &params));
    EXPECT(params.dptr != 0);
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = params.dptr, .value = 77, .elementSize = 4, .width = WORDS, .height = 1};
    OK(cuGraphAddMemsetNode(&fill, graph, &allocation, 1, &set, context));
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = params.dptr,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = host,
                         .WidthInBytes = sizeof host,
                         .Height = 1,
                         .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &out, context));
    OK(cuGraphAddMemFreeNode(&free_node, graph, &copy, 1, params.dptr));
    CUDA_MEM_ALLOC_NODE_PARAMS read_back;
    CUdeviceptr freed = 0;
    OK(cuGraphMemAllocNodeGetParams(allocation, &read_back));
    OK(cuGraphMemFreeNodeGetParams(free_node, &freed));
    EXPECT(read_back.dptr == params.dptr && read_back.bytesize == sizeof host && freed == params.dptr);
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);

    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(host[0] == 77 && host[WORDS - 1] == 77);
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= sizeof host); /* also what was freed */
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) >= sizeof host);
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) >= sizeof host);
    OK(cuDeviceGraphMemTrim(device));
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &(cuuint64_t){0}));
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 0);

    /* what such a graph is refused */
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, graph, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&other, graph));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphRemoveDependencies(graph, &allocation, &fill, NULL, 1));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(free_node));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(copy));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&free_node, graph, NULL, 0, params.dptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&free_node, graph, NULL, 0, 0));
    OK(cuGraphCreate(&other, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&child, other, NULL, 0, graph));
    CUDA_MEM_ALLOC_NODE_PARAMS bad = parameters((size_t)-1);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphAddMemAllocNode(&allocation, other, NULL, 0, &bad));
    bad = parameters(64);
    bad.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&allocation, other, NULL, 0, &bad));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(params.dptr));
    /* memory is freed by its own graph or by others */
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&free_node, other, NULL, 0, params.dptr));
    params = parameters(64);
    OK(cuGraphAddMemAllocNode(&allocation, other, NULL, 0, &params));
    OK(cuGraphCreate(&captured, 0));
    OK(cuGraphAddMemFreeNode(&free_node, captured, NULL, 0, params.dptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&free_node, other, &allocation, 1, params.dptr));
    OK(cuGraphDestroy(captured));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));

    /* allocated by a captured call, freed by the program before the next launch */
    CUdeviceptr kept = 0;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&kept, sizeof host, stream));
    OK(cuMemsetD32Async(kept, 5, WORDS, stream));
    OK(cuStreamEndCapture(stream, &captured));
    OK(cuGraphInstantiate(&exec, captured, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuGraphLaunch(exec, stream));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
        unsigned count = WORDS, factor = 3, term = 1;
        OK(LAUNCH(kernel("affine"), 1, WORDS, stream, &kept, &count, &factor, &term));
        OK(cuMemcpyDtoHAsync(host, kept, sizeof host, stream));
        if (i)
            OK(cuMemFree(kept));
        else
            OK(cuMemFreeAsync(kept, stream));
        OK(cuStreamSynchronize(stream));
        EXPECT(host[7] == 16);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(kept));
    OK(cuGraphExecDestroy(exec));

    /* or by the launch itself */
    OK(cuGraphInstantiate(&exec, captured, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(captured));

    /* it outlives its graph */
    OK(cuMemcpyDtoH(&zero, kept, 4));
    EXPECT(zero == 5);
    OK(cuMemFree(kept));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&zero, kept, 4));
    OK(cuDeviceGraphMemTrim(device));
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim(1000));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &(cuuint64_t){0}));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &(cuuint64_t){1}));
    thrown_away(stream, sizeof host);
    thrown_away(stream, 4 << 20);
    return check_failed;
}
