// A captured copy is told as it was asked for: with the kinds of memory that its call names, addresses alone
// for a copy of addresses, and no pitches where it has one row. It is set again with what was told.
#include "graphs.h"

enum { BYTES = 64, PITCH = 256, ROWS = 3 };

static CUstream stream;

static CUgraphNode only_node(CUgraph graph) {
    CUgraphNode node = NULL;
    size_t count = 1;
    OK(cuGraphGetNodes(graph, &node, &count));
    EXPECT(count == 1);
    return node;
}

static CUDA_MEMCPY3D told(CUgraph *graph, CUgraphNode *node) {
    CUDA_MEMCPY3D copy;
    OK(cuStreamEndCapture(stream, graph));
    *node = only_node(*graph);
    OK(cuGraphMemcpyNodeGetParams(*node, &copy));
    return copy;
}

static void expect_row(CUmemorytype to, uint64_t to_address, CUmemorytype from, uint64_t from_address) {
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEMCPY3D copy = told(&graph, &node);
    EXPECT(copy.dstMemoryType == to && copy.srcMemoryType == from);
    EXPECT((uint64_t)copy.dstHost == (to == CU_MEMORYTYPE_HOST ? to_address : 0));
    EXPECT((uint64_t)copy.srcHost == (from == CU_MEMORYTYPE_HOST ? from_address : 0));
    EXPECT(copy.dstDevice == (to == CU_MEMORYTYPE_HOST ? 0 : to_address));
    EXPECT(copy.srcDevice == (from == CU_MEMORYTYPE_HOST ? 0 : from_address));
    EXPECT(copy.WidthInBytes == BYTES && copy.Height == 1 && copy.Depth == 1);
    EXPECT(copy.srcPitch == 0 && copy.srcHeight == 0 && copy.dstPitch == 0 && copy.dstHeight == 0);
    OK(cuGraphDestroy(graph));
}

static void begin(void) {
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

// What was told, with another width, is what the graph copies then.
static void set_again(CUdeviceptr to, CUdeviceptr from) {
    unsigned char bytes[BYTES];
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    begin();
    OK(cuMemcpyAsync(to, from, BYTES, stream));
    CUDA_MEMCPY3D copy = told(&graph, &node);
    copy.WidthInBytes = BYTES / 2;
    OK(cuGraphMemcpyNodeSetParams(node, &copy));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuMemsetD8(to, 1, BYTES));
    OK(cuMemsetD8(from, 2, BYTES));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(bytes, to, BYTES));
    EXPECT(bytes[BYTES / 2 - 1] == 2 && bytes[BYTES / 2] == 1);
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE; // the same memory by another name
    copy.WidthInBytes = BYTES;
    OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(bytes, to, BYTES));
    EXPECT(bytes[BYTES - 1] == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void rows(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY2D given = {.srcXInBytes = 8,
                           .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = PITCH,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = BYTES,
                           .WidthInBytes = BYTES,
                           .Height = ROWS};
    CUgraph graph;
    CUgraphNode node;
    begin();
    OK(cuMemcpy2DAsync(&given, stream));
    CUDA_MEMCPY3D copy = told(&graph, &node);
    EXPECT(copy.srcXInBytes == 8 && copy.srcDevice == from && copy.srcPitch == PITCH);
    EXPECT(copy.dstXInBytes == 0 && copy.dstDevice == to && copy.dstPitch == BYTES);
    EXPECT(copy.WidthInBytes == BYTES && copy.Height == ROWS && copy.Depth == 1);
    OK(cuGraphDestroy(graph));
}

int main(void) {
    CUdeviceptr managed;
    void *pinned;
    start();
    CUdeviceptr to = allocate(ROWS * PITCH), from = allocate(ROWS * PITCH);
    OK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost(&pinned, BYTES));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    begin();
    OK(cuMemcpyAsync(to, from, BYTES, stream));
    expect_row(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from);
    begin();
    OK(cuMemcpyAsync(managed, (CUdeviceptr)pinned, BYTES, stream));
    expect_row(CU_MEMORYTYPE_UNIFIED, managed, CU_MEMORYTYPE_UNIFIED, (uint64_t)pinned);
    begin();
    OK(cuMemcpyDtoDAsync(managed, from, BYTES, stream));
    expect_row(CU_MEMORYTYPE_DEVICE, managed, CU_MEMORYTYPE_DEVICE, from);
    begin();
    OK(cuMemcpyHtoDAsync(to, pinned, BYTES, stream));
    expect_row(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, (uint64_t)pinned);
    begin();
    OK(cuMemcpyDtoHAsync(pinned, from, BYTES, stream));
    expect_row(CU_MEMORYTYPE_HOST, (uint64_t)pinned, CU_MEMORYTYPE_DEVICE, from);
    set_again(to, from);
    rows(to, from);
    OK(cuStreamDestroy(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(managed));
    return check_failed;
}
