// Copies and memsets that leave their allocation, or touch none, are refused at once and change nothing.
#include "driver.h"

int main(void) {
    start();
    static unsigned host[2048];
    CUdeviceptr memory = allocate((size_t)2 << 20);
    unsigned count = 1024, seed = 9;
    OK(LAUNCH(kernel("fill"), 4, 256, NULL, &memory, &count, &seed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(memory + ((size_t)2 << 20) - 16, host, 32));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, memory - 16, 32));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, 0x1000, 32));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(0, 0, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory + 2, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(memory + 1, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 16));
    OK(cuMemcpyHtoD(memory, host, 0));
    OK(cuMemsetD8(memory, 0, 0));
    OK(cuMemcpyDtoH(host, memory, 4096));
    int wrong = 0;
    for (unsigned i = 0; i < 1024; i++)
        wrong += host[i] != (i ^ seed) * 2654435761u;
    EXPECT(wrong == 0);
    digest("memory", host, 4096);
    return check_failed;
}
