// Streams that wait for a word of memory, and write one: each comparison, both widths, across streams, and
// what is refused.
#include "driver.h"

int main(void) {
    CUstream first, second;
    unsigned words[4] = {0};
    start();
    CUdeviceptr flags = allocate(64), counter = allocate(4);
    OK(cuMemsetD8(flags, 0, 64));
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    // The second goes on when the first has written, one comparison after another.
    OK(cuStreamWaitValue32(second, flags, 5, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWaitValue64(second, flags + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWaitValue32(second, flags + 16, 4, CU_STREAM_WAIT_VALUE_AND));
    OK(cuStreamWaitValue32(second, flags + 20, 0xfffffffe, CU_STREAM_WAIT_VALUE_NOR));
    OK(LAUNCH(kernel("count_up"), 1, 1, second, &counter));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    OK(cuStreamWriteValue32(first, flags, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(cuStreamWriteValue64(first, flags + 8, (1ull << 40) + 3, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    OK(cuStreamWriteValue32(first, flags + 16, 6, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(cuStreamSynchronize(second));
    OK(cuMemcpyDtoH(words, counter, 4));
    EXPECT(words[0] == 1);
    OK(cuMemcpyDtoH(words, flags, sizeof words));
    EXPECT(words[0] == 5 && words[2] == 3 && words[3] == 1u << 8);
    CUstreamBatchMemOpParams batch[3] = {{0}};
    batch[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    batch[0].waitValue.address = flags;
    batch[0].waitValue.value = 5;
    batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    batch[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[1].writeValue.address = flags + 8;
    batch[1].writeValue.value64 = 77;
    batch[2].operation = CU_STREAM_MEM_OP_BARRIER;
    OK(cuStreamBatchMemOp(first, 3, batch, 0));
    OK(cuStreamSynchronize(first));
    OK(cuMemcpyDtoH(words, flags, sizeof words));
    EXPECT(words[2] == 77 && words[3] == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 257, batch, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 3, batch, 1));
    batch[2].operation = 99;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 3, batch, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, flags + 2, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(first, flags + 4, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(first, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(first, flags, 0, 8));
    return check_failed;
}
