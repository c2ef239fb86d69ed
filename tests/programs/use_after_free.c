// Freed memory is refused: copies and memsets at once, a kernel that touches it as an illegal address.
#include "driver.h"

int main(void) {
    const size_t bytes = (size_t)64 << 20; // large enough to be unmapped when freed
    start();
    CUdeviceptr result = allocate(4), memory;
    unsigned value = 123, back = 0;
    OK(cuMemAlloc(&memory, bytes));
    OK(cuMemsetD32(memory, value, bytes / 4));
    OK(LAUNCH(kernel("load"), 1, 1, NULL, &result, &memory));
    OK(cuMemcpyDtoH(&back, result, sizeof back));
    EXPECT(back == 123);

    OK(cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(memory, &value, sizeof value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&back, memory, sizeof back));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(result, memory, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 0, 4));
    CUdeviceptr idle = allocate(128), busy = allocate(128);
    unsigned count = 32, delay = 300000;
    for (int kind = 0; kind < 2; kind++) { // in a stream's order, too, which is not there yet
        OK(kind == 0 ? cuMemAllocAsync(&memory, bytes, NULL) : cuMemAlloc(&memory, bytes));
        OK(LAUNCH(kernel("slow_copy"), 1, 32, NULL, &busy, &idle, &count, &delay));
        OK(cuMemFreeAsync(memory, NULL));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(memory, 0, 4, NULL));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(result, memory, 4, NULL));
    }
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&back, result, sizeof back));
    OK(LAUNCH(kernel("load"), 1, 1, NULL, &result, &memory));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    return check_failed;
}
