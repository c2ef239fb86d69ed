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
}

int main(void) {
    start();
    for (int i = 0; i < COUNT * BYTES; i++)
        source[i / BYTES][i % BYTES] = (unsigned char)(i * 5 + i / 256);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    pointers();
    boxes();
    return check_failed;
}
