// Copies given as lists: between memory of all kinds, with arrays, with attributes; what is refused, and
// where.
#include "driver.h"

enum { COUNT = 4, BYTES = 1024 };

static CUstream stream;
static unsigned char source[COUNT][BYTES], back[COUNT][BYTES];
static CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

static void pointers(void) {
    CUdeviceptr memory[COUNT], host[COUNT], away[COUNT];
    size_t sizes[COUNT], firsts[2] = {0, 2};
    CUmemcpyAttributes attributes[2] = {in_order,
                                        {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};
    for (int i = 0; i < COUNT; i++) {
        memory[i] = allocate(BYTES);
        host[i] = (CUdeviceptr)source[i];
        away[i] = (CUdeviceptr)back[i];
        sizes[i] = BYTES - 10 * i;
    }
    OK(cuMemcpyBatchAsync(memory, host, sizes, COUNT, attributes, firsts, 2, stream));
    OK(cuMemcpyBatchAsync(away, memory, sizes, COUNT, &in_order, firsts, 1, stream));
    OK(cuStreamSynchronize(stream));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += memcmp(source[i], back[i], sizes[i]) != 0;
    EXPECT(wrong == 0);
    OK(cuMemcpyWithAttributesAsync(memory[0], memory[1], 64, &in_order, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(back[0], memory[0], 64));
    EXPECT(memcmp(back[0], source[1], 64) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, sizes, 0, attributes, firsts, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, sizes, COUNT, attributes, firsts, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, sizes, COUNT, attributes, firsts, 2, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, NULL, COUNT, attributes, firsts, 2, stream));
    firsts[1] = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, sizes, COUNT, attributes, firsts, 2, stream));
    firsts[1] = 2, attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, sizes, COUNT, attributes, firsts, 2, stream));
    sizes[2] = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(memory, host, sizes, COUNT, &in_order, firsts, 1, stream));
}

static void boxes(void) {
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR shape = {16, 4, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0};
    CUdeviceptr memory = allocate(BYTES);
    OK(cuArray3DCreate(&array, &shape));
    OK(cuMemcpyHtoD(memory, source[0], BYTES));
    CUDA_MEMCPY3D_BATCH_OP ops[2] = {0};
    ops[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[0].src.op.ptr.ptr = memory;
    ops[0].src.op.ptr.rowLength = 20;
    ops[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].dst.op.array.array = array;
    ops[0].dst.op.array.offset.x = 2;
    ops[0].extent = (CUextent3D){10, 4, 1};
    ops[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    OK(cuMemcpy3DBatchAsync(1, ops, 0, stream));
    ops[1].src = ops[0].dst;
    ops[1].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[1].dst.op.ptr.ptr = (CUdeviceptr)back[0];
    ops[1].extent = ops[0].extent;
    ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    OK(cuMemcpy3DWithAttributesAsync(&ops[1], 0, stream));
    OK(cuStreamSynchronize(stream));
    int wrong = 0;
    for (int row = 0; row < 4; row++)
        wrong += memcmp(back[0] + row * 40, source[0] + row * 80, 40) != 0;
    EXPECT(wrong == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, ops, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(0, ops, 0, stream));
    ops[0].extent.width = 15;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, ops, 0, stream));
    OK(cuArrayDestroy(array));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3DBatchAsync(1, ops, 0, stream));

    // texels of two arrays must be of one size
    CUarray other;
    shape.NumChannels = 1;
    OK(cuArray3DCreate(&array, &shape));
    shape.NumChannels = 2;
    OK(cuArray3DCreate(&other, &shape));
    ops[0].src = ops[0].dst;
    ops[0].dst.op.array.array = array;
    ops[0].src.op.array.array = other;
    ops[0].extent.width = 4;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, ops, 0, stream));
    ops[0].src.op.array.array = array, ops[0].src.op.array.offset.x = 8;
    OK(cuMemcpy3DBatchAsync(1, ops, 0, stream));
    OK(cuArrayDestroy(array));
    OK(cuArrayDestroy(other));
}

// The interface of 12.8 says which copy it was.
static void places(void) {
    CUresult (*batch)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t,
                      size_t *, CUstream);
    CUresult (*boxes)(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream);
    OK(cuGetProcAddress("cuMemcpyBatchAsync", (void **)&batch, 12080, 0, NULL));
    OK(cuGetProcAddress("cuMemcpy3DBatchAsync", (void **)&boxes, 12080, 0, NULL));
    CUdeviceptr to[3] = {allocate(64), allocate(64), allocate(64)}, from[3];
    size_t sizes[3] = {64, 64, 64}, first = 0, failed = 77;
    for (int i = 0; i < 3; i++)
        from[i] = (CUdeviceptr)source[i];
    OK(batch(to, from, sizes, 3, &in_order, &first, 1, &failed, stream));
    EXPECT(failed == 77);
    sizes[1] = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, batch(to, from, sizes, 3, &in_order, &first, 1, &failed, stream));
    EXPECT(failed == 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, batch(to, from, sizes, 3, NULL, &first, 1, &failed, stream));
    EXPECT(failed == SIZE_MAX);
    sizes[1] = 64, failed = 77, to[2] = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, batch(to, from, sizes, 3, &in_order, &first, 1, &failed, stream));
    EXPECT(failed == 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, batch(to, from, sizes, 3, &in_order, &first, 1, NULL, stream));
    CUDA_MEMCPY3D_BATCH_OP ops[2] = {0};
    for (int i = 0; i < 2; i++) {
        ops[i].src = (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from[i]};
        ops[i].dst = (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to[i]};
        ops[i].extent = (CUextent3D){16, 2, 2};
        ops[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    }
    OK(boxes(2, ops, &failed, 0, stream));
    ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, boxes(2, ops, &failed, 0, stream));
    EXPECT(failed == 1);
    ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, ops[0].extent.depth = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, boxes(2, ops, &failed, 0, stream));
    EXPECT(failed == 0);
    ops[0].extent.depth = 2, ops[1].src.op.ptr.rowLength = 15;
    FAILS(CUDA_ERROR_INVALID_VALUE, boxes(2, ops, &failed, 0, stream));
    EXPECT(failed == 1);
    ops[1].src.op.ptr.rowLength = 16, ops[1].dst.op.ptr.layerHeight = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, boxes(2, ops, &failed, 0, stream));
    ops[1].dst.op.ptr.layerHeight = 2, ops[1].src.type = 7;
    FAILS(CUDA_ERROR_INVALID_VALUE, boxes(2, ops, &failed, 0, stream));
    OK(cuStreamSynchronize(stream));
}

// A source that ends with the call, behind work that takes its time; and lists that a graph is made of.
static void orders(void) {
    CUdeviceptr memory = allocate(BYTES), page, flag = allocate(4);
    CUmemcpyAttributes now = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
    void *pinned;
    OK(cuMemHostAlloc(&pinned, BYTES, 0));
    page = (CUdeviceptr)pinned;
    memcpy(pinned, source[0], BYTES);
    OK(cuMemsetD32Async(flag, 1, 1, stream));
    OK(cuMemcpyWithAttributesAsync(memory, page, BYTES, &now, stream));
    memset(pinned, 0, BYTES);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(back[0], memory, BYTES));
    EXPECT(memcmp(back[0], source[0], BYTES) == 0);

    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr to[2] = {memory, memory + 64}, from[2] = {page, page + 64};
    size_t sizes[2] = {64, 64}, first = 0, nodes = 0;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyBatchAsync(to, from, sizes, 2, &now, &first, 1, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 2);
    OK(cuGraphInstantiate(&exec, graph, 0));
    memcpy(pinned, source[1], BYTES);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(back[0], memory, 128));
    EXPECT(memcmp(back[0], source[1], 128) == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));

    // Memory that the device reaches too.
    unsigned count = 64, delay = 300000, *mapped;
    CUdeviceptr idle = allocate(256), busy = allocate(256);
    OK(cuMemHostAlloc((void **)&mapped, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    mapped[0] = 5;
    OK(LAUNCH(kernel("slow_copy"), 1, 64, stream, &busy, &idle, &count, &delay));
    OK(cuMemcpyWithAttributesAsync(memory, (CUdeviceptr)mapped, BYTES, &now, stream));
    mapped[0] = 6;
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(back[0], memory, BYTES));
    EXPECT(back[0][0] == 5);
    OK(cuMemFreeHost(mapped));
}

// What lies before the first memory of a program is no memory, of the host neither.
static void before_the_first(CUdeviceptr memory) {
    CUdeviceptr before = memory - 4096;
    size_t size = 64, first = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(&memory, &before, &size, 1, &in_order, &first, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(&before, &memory, &size, 1, &in_order, &first, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy((CUdeviceptr)source[0], before, 64));
}

int main(void) {
    start();
    CUdeviceptr first = allocate(64);
    for (int i = 0; i < COUNT * BYTES; i++)
        source[i / BYTES][i % BYTES] = (unsigned char)(i * 5 + i / 256);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    before_the_first(first);
    pointers();
    boxes();
    places();
    orders();
    CUDA_FABRIC_COPY_BATCH_OP fabric = {0};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuFabricCpyBatchAsync(1, &fabric, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFabricCpyBatchAsync(0, &fabric, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFabricCpyBatchAsync(1, NULL, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFabricCpyBatchAsync(1, &fabric, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(NULL, NULL, NULL, 1, NULL, NULL, 1, stream));
    OK(cuStreamDestroy(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuMemcpyWithAttributesAsync(allocate(64), allocate(64), 64, &in_order, stream));
    OK(cuCtxSetCurrent(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyBatchAsync(NULL, NULL, NULL, 1, NULL, NULL, 1, stream));
    return check_failed;
}
