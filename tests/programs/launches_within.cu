// Kernels that launch kernels do not run on the simulated device: their image is refused, and what needs none of
// its kernels goes on.
//
// compile: -rdc=true -lcudadevrt
// device: sim, for a GPU runs them
#include "check.h"

__device__ int reached;

__global__ void inner() {
    reached = 1;
}

__global__ void outer() {
    inner<<<1, 1>>>();
}

int main() {
    int *word, value = 0;
    outer<<<1, 1>>>();
    RT_FAILS(cudaErrorInvalidPtx, cudaGetLastError());
    inner<<<1, 1>>>();
    RT_FAILS(cudaErrorInvalidPtx, cudaGetLastError());
    RT_OK(cudaDeviceSynchronize());
    RT_OK(cudaMalloc(&word, sizeof value));
    RT_OK(cudaMemset(word, 1, sizeof value));
    RT_OK(cudaMemcpy(&value, word, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 0x01010101);
    return check_failed;
}
