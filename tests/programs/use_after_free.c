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
    OK(cuMemcpyDtoH(&back, result, sizeof back));
    OK(LAUNCH(kernel("load"), 1, 1, NULL, &result, &memory));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    return check_failed;
}
