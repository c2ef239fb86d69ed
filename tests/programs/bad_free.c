// Frees that CUDA refuses: twice, an address inside a block, host memory, the wrong function; NULL is fine.
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr memory, counter = allocate(4);
    void *pinned;
    int local = 0;
    OK(cuMemAlloc(&memory, 4096));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemsetD32(counter, 10, 1));

    OK(cuMemFree(0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory + 256));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree((CUdeviceptr)(uintptr_t)&local));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(&local));
    OK(cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    OK(cuMemFreeHost(pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));

    unsigned value = 0;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 11);
    return check_failed;
}
