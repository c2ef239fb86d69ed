// Attributes of kernels and what follows from them: occupancy, the launch bounds, the best block size.
#include "check.h"

__global__ void __launch_bounds__(128) bounded(int *data) {
    __shared__ int shared[100];
    shared[threadIdx.x % 100] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = shared[(threadIdx.x + 1) % 100];
}

__global__ void plain(int *data) {
    data[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

int main() {
    cudaFuncAttributes attributes;
    int blocks = 0, grid = 0, block = 0, *data, values[256];
    RT_OK(cudaFuncGetAttributes(&attributes, bounded));
    EXPECT(attributes.sharedSizeBytes == 400);
    EXPECT(attributes.maxThreadsPerBlock == 128);
    EXPECT(attributes.ptxVersion > 0);
    printf("registers %d, local %zu, constant %zu, dynamic shared %d\n", attributes.numRegs,
           attributes.localSizeBytes, attributes.constSizeBytes, attributes.maxDynamicSharedSizeBytes);
    RT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 256, 0));
    EXPECT(blocks > 0 && blocks <= 8);
    printf("%d blocks of 256\n", blocks);
    RT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 8192));
    printf("%d blocks of 128 with 8 KiB\n", blocks);
    RT_OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain));
    EXPECT(block % 32 == 0 && block > 0 && grid > 0);
    RT_OK(cudaMalloc(&data, sizeof values));
    RT_OK(cudaMemset(data, 0, sizeof values));
    bounded<<<1, 256>>>(data);
    RT_CALL(cudaGetLastError());
    plain<<<1, 256>>>(data);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost));
    EXPECT(values[0] == 1 && values[255] == 1);
    return check_failed;
}
