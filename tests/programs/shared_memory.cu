// Static and dynamic shared memory, and more than 48 KiB of it only after it was asked for.
#include <vector>

#include "check.h"

__global__ void reverse(int *data, int count) {
    extern __shared__ int shared[];
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        shared[i] = data[blockIdx.x * count + i];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        data[blockIdx.x * count + i] = shared[count - 1 - i];
}

__global__ void scan(int *data) {
    __shared__ int sums[256];
    const int i = threadIdx.x;
    sums[i] = data[blockIdx.x * 256 + i];
    for (int step = 1; step < 256; step *= 2) {
        __syncthreads();
        const int left = i >= step ? sums[i - step] : 0;
        __syncthreads();
        sums[i] += left;
    }
    data[blockIdx.x * 256 + i] = sums[i];
}

int main() {
    constexpr int COUNT = 15000; // 60 KB
    std::vector<int> host(COUNT * 2), back(COUNT * 2);
    for (int i = 0; i < COUNT * 2; i++)
        host[i] = i % 1000;
    int *data;
    RT_OK(cudaMalloc(&data, host.size() * 4));
    RT_OK(cudaMemcpy(data, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
    reverse<<<2, 128, COUNT * 4>>>(data, COUNT);
    RT_FAILS(cudaErrorInvalidValue, cudaGetLastError());
    RT_OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, COUNT * 4));
    reverse<<<2, 128, COUNT * 4>>>(data, COUNT);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(back.data(), data, host.size() * 4, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += back[i] != host[COUNT - 1 - i] || back[COUNT + i] != host[2 * COUNT - 1 - i];
    EXPECT(wrong == 0);
    scan<<<100, 256>>>(data);
    RT_OK(cudaDeviceSynchronize());
    std::vector<int> sums(25600);
    RT_OK(cudaMemcpy(sums.data(), data, sums.size() * 4, cudaMemcpyDeviceToHost));
    wrong = 0;
    for (int i = 0, sum = 0; i < 25600; i++) {
        sum = i % 256 == 0 ? back[i] : sum + back[i];
        wrong += sums[i] != sum;
    }
    EXPECT(wrong == 0);
    digest("sums", sums.data(), sums.size() * 4);
    return check_failed;
}
