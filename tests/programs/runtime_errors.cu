// The runtime's error state: what is returned at once, what cudaGetLastError keeps and clears, bad arguments.
#include "check.h"

__global__ void set(int *data, int value) {
    data[threadIdx.x] = value;
}

// NVIDIA's own driver has the runtime say cudaErrorInvalidConfiguration; by the driver API it is
// CUDA_ERROR_INVALID_VALUE.
static bool refused(cudaError_t error) {
    return error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue;
}

int main() {
    int *data, values[8] = {0};
    RT_OK(cudaMalloc(&data, sizeof values));
    set<<<1, 2048>>>(data, 1);
    RT_CALL(cudaPeekAtLastError());
    EXPECT(refused(cudaPeekAtLastError()) && refused(cudaGetLastError()));
    RT_OK(cudaGetLastError());
    set<<<0, 32>>>(data, 1);
    EXPECT(refused(cudaGetLastError()));
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
