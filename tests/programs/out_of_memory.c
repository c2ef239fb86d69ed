// Allocation until the device is full, then everything is freed and the memory works.
#include "driver.h"

int main(void) {
    enum { MAXIMUM = 4096 };
    static CUdeviceptr blocks[MAXIMUM];
    const size_t block = (size_t)256 << 20;
    start();
    size_t free_before, free_full, total;
    OK(cuMemGetInfo(&free_before, &total));
    EXPECT(free_before <= total);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&blocks[0], (size_t)1 << 46));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&blocks[0], total + 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&blocks[0], 0));

    int taken = 0;
    CUresult result = CUDA_SUCCESS;
    while (taken < MAXIMUM && (result = cuMemAlloc(&blocks[taken], block)) == CUDA_SUCCESS)
        taken++;
    CALL(result);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(taken > 0 && taken <= (int)(free_before / block));
    OK(cuMemGetInfo(&free_full, &total));
    EXPECT(free_full < block);
    for (int i = 0; i < taken; i++)
        QUIET(cuMemFree(blocks[i]));

    unsigned value = 0;
    CUdeviceptr counter = allocate(block);
    OK(cuMemsetD32(counter, 41, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 42);
    return check_failed;
}
