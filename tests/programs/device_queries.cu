// What a program asks about its device; the answers are the same wherever it runs.
#include "check.h"

__global__ void one(int *data) {
    *data = warpSize;
}

int main() {
    int count = 0, device = 99, driver = 0, runtime = 0, least = 0, greatest = 0, *data, value = 0;
    cudaDeviceProp properties;
    char bus[32];
    size_t limit = 0;
    RT_OK(cudaGetDeviceCount(&count));
    EXPECT(count >= 1);
    RT_OK(cudaGetDevice(&device));
    EXPECT(device == 0);
    RT_OK(cudaGetDeviceProperties(&properties, 0));
    printf("%s, %d.%d, %d multiprocessors, warp %d, %d threads, grid %d x %d x %d\n", properties.name,
           properties.major, properties.minor, properties.multiProcessorCount, properties.warpSize,
           properties.maxThreadsPerBlock, properties.maxGridSize[0], properties.maxGridSize[1],
           properties.maxGridSize[2]);
    printf("shared %zu, registers %d, constant %zu, L2 %d, bus width %d\n", properties.sharedMemPerBlock,
           properties.regsPerBlock, properties.totalConstMem, properties.l2CacheSize,
           properties.memoryBusWidth);
    EXPECT(properties.totalGlobalMem > 0);
    RT_OK(cudaDriverGetVersion(&driver));
    RT_OK(cudaRuntimeGetVersion(&runtime));
    EXPECT(driver >= runtime / 1000 * 1000);
    RT_OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    RT_OK(cudaDeviceGetByPCIBusId(&device, bus));
    bus[strlen(bus) - 1] = '1'; // what else is on that card is no GPU
    RT_FAILS(cudaErrorInvalidDevice, cudaDeviceGetByPCIBusId(&device, bus));
    RT_OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest <= least);
    RT_OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    EXPECT(limit > 0);
    RT_OK(cudaDeviceSetLimit(cudaLimitStackSize, 2 * limit));
    RT_OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    printf("stack %zu\n", limit);
    RT_OK(cudaMalloc(&data, 4));
    one<<<1, 1>>>(data);
    RT_OK(cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost));
    EXPECT(value == 32);
    return check_failed;
}
