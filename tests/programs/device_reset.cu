// cudaDeviceReset in the middle: everything is gone, and the device can be used again.
#include "check.h"

__device__ int total = 3;

__global__ void increment(int *data) {
    data[threadIdx.x] += total;
    __syncthreads();
    if (threadIdx.x == 0)
        total = 10;
}

static int round_trip() {
    int *data, values[32];
    RT_OK(cudaMalloc(&data, sizeof values));
    RT_OK(cudaMemset(data, 0, sizeof values));
    increment<<<1, 32>>>(data);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost));
    return values[31];
}

int main() {
    EXPECT(round_trip() == 3);
    void *leak;
    RT_OK(cudaMalloc(&leak, 64 << 20));
    RT_OK(cudaDeviceReset());
    EXPECT(round_trip() == 3); // variables have their initial values again
    RT_FAILS(cudaErrorInvalidValue, cudaMemset(leak, 0, 16));
    return check_failed;
}
