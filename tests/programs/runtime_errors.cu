// The runtime's error state: what is returned at once, what cudaGetLastError keeps and clears, bad arguments.
#include "check.h"

__global__ void set(int *data, int value) {
    data[threadIdx.x] = value;
}

__global__ void __launch_bounds__(64) bounded(int *data) {
    data[threadIdx.x] = 1;
}

int main() {
    int *data, values[8] = {0};
    RT_OK(cudaMalloc(&data, sizeof values));
    set<<<1, 2048>>>(data, 1);
    // What no device can launch is an invalid configuration, by every call; what this kernel cannot is a
    // value.
    RT_FAILS(cudaErrorInvalidConfiguration, cudaPeekAtLastError());
    RT_FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    RT_OK(cudaGetLastError());
    set<<<0, 32>>>(data, 1);
    RT_FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    set<<<1, 0>>>(data, 1);
    RT_FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    set<<<dim3(1, 65536), 1>>>(data, 1);
    RT_FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    set<<<1, dim3(1, 1, 65)>>>(data, 1);
    RT_FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    bounded<<<1, 128>>>(data);
    RT_FAILS(cudaErrorInvalidValue, cudaGetLastError());
    int value = 1;
    void *arguments[] = {&data, &value};
    RT_FAILS(
        cudaErrorInvalidConfiguration,
        cudaLaunchCooperativeKernel(reinterpret_cast<void *>(set), dim3(0), dim3(1), arguments, 0, nullptr));
    cudaLaunchConfig_t configuration = {};
    configuration.gridDim = dim3(1);
    configuration.blockDim = dim3(4096);
    RT_FAILS(cudaErrorInvalidConfiguration, cudaLaunchKernelEx(&configuration, set, data, value));
    RT_FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    RT_FAILS(cudaErrorInvalidValue, cudaMalloc(nullptr, 16));
    RT_FAILS(cudaErrorMemoryAllocation, cudaMalloc(&data, 1ull << 46));
    RT_FAILS(cudaErrorMemoryAllocation, cudaGetLastError());
    RT_FAILS(cudaErrorInvalidDevice, cudaSetDevice(1000));
    RT_FAILS(cudaErrorInvalidMemcpyDirection,
             cudaMemcpy(data, values, sizeof values, static_cast<cudaMemcpyKind>(17)));
    RT_CALL(cudaGetLastError());
    RT_OK(cudaMalloc(&data, sizeof values));
    set<<<1, 8>>>(data, 6);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost));
    EXPECT(values[0] == 6 && values[7] == 6);
    RT_OK(cudaFree(data));
    RT_FAILS(cudaErrorInvalidValue, cudaFree(data));
    RT_OK(cudaFree(nullptr));
    return check_failed;
}
