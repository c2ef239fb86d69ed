// __device__ and __constant__ variables: initial values, copies to and from them, their addresses and sizes.
#include "check.h"

__device__ int counters[32] = {5, 4, 3};
__constant__ float weights[8];
__device__ double untouched = 2.5;

__global__ void weigh(float *result) {
    const int i = threadIdx.x;
    result[i] = weights[i % 8] * counters[i] + static_cast<float>(untouched);
    atomicAdd(&counters[i], i);
}

int main() {
    float host_weights[8], *device, result[32];
    int host_counters[32];
    double value = 0;
    for (int i = 0; i < 8; i++)
        host_weights[i] = 1.5f * i - 2;
    RT_OK(cudaMemcpyFromSymbol(host_counters, counters, sizeof counters));
    EXPECT(host_counters[0] == 5 && host_counters[2] == 3 && host_counters[31] == 0);
    RT_OK(cudaMemcpyToSymbol(weights, host_weights, sizeof weights));
    host_counters[4] = 44;
    RT_OK(cudaMemcpyToSymbol(counters, &host_counters[4], 4, 16));
    RT_OK(cudaMalloc(&device, sizeof result));
    weigh<<<1, 32>>>(device);
    RT_OK(cudaMemcpy(result, device, sizeof result, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < 32; i++)
        wrong += result[i] != host_weights[i % 8] * host_counters[i] + 2.5f;
    EXPECT(wrong == 0);
    RT_OK(cudaMemcpyFromSymbolAsync(&value, untouched, sizeof value));
    RT_OK(cudaDeviceSynchronize());
    EXPECT(value == 2.5);
    void *address = nullptr;
    size_t size = 0;
    RT_OK(cudaGetSymbolAddress(&address, counters));
    RT_OK(cudaGetSymbolSize(&size, counters));
    EXPECT(size == sizeof host_counters);
    RT_OK(cudaMemcpy(host_counters, address, size, cudaMemcpyDeviceToHost));
    EXPECT(host_counters[4] == 48 && host_counters[31] == 31);
    digest("counters", host_counters, size);
    return check_failed;
}
