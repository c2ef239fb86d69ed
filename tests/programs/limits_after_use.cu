// The sizes of what kernels print into and allocate from are settled by the first kernel that does so, until
// the context is reset; other limits are not.
#include <cuda_runtime.h>

#include "check.h"

__global__ void says(int number) {
    printf("number %d\n", number);
}

__global__ void allocates(int **kept) {
    int *memory = (int *)malloc(64);
    *kept = memory;
    free(memory);
}

__global__ void does_neither(int **kept) {
    *kept = nullptr;
}

int main() {
    int **kept = nullptr;
    RT_OK(cudaMalloc(&kept, sizeof *kept));
    RT_OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    does_neither<<<1, 1>>>(kept);
    RT_OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20));
    RT_OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    says<<<1, 1>>>(7);
    RT_FAILS(cudaErrorInvalidValue, cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    RT_OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 8 << 20));
    allocates<<<1, 1>>>(kept);
    RT_FAILS(cudaErrorInvalidValue, cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    RT_OK(cudaDeviceSetLimit(cudaLimitStackSize, 2048));
    RT_FAILS(cudaErrorInvalidValue, cudaGetLastError());
    RT_OK(cudaDeviceReset());
    RT_OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    RT_OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    return check_failed;
}
