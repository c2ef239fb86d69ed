// What was set once holds in every later round: attributes of kernels, limits, and the carve-out that a
// launch with much shared memory needs.
#include "rounds.h"

enum { LARGE = 60 << 10 }; // more than without asking, and what every card has

__global__ void turn_round(unsigned *data, unsigned count) {
    extern __shared__ unsigned shared[];
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        shared[i] = data[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        data[i] = shared[count - 1 - i] + 1;
}

__global__ void untouched(unsigned *data) {
    extern __shared__ unsigned shared[];
    shared[threadIdx.x] = data[threadIdx.x];
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    const unsigned count = LARGE / sizeof(unsigned);
    static unsigned host[LARGE / sizeof(unsigned)], result[LARGE / sizeof(unsigned)];
    unsigned *data;
    size_t limit = 0, fifo = 0;
    cudaFuncAttributes attributes;
    RT_OK(cudaMalloc(&data, sizeof host));
    for (unsigned i = 0; i < count; i++)
        host[i] = i * 7;
    RT_OK(cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice));
    RT_OK(cudaFuncSetAttribute(turn_round, cudaFuncAttributeMaxDynamicSharedMemorySize, LARGE));
    RT_OK(cudaFuncSetAttribute(turn_round, cudaFuncAttributePreferredSharedMemoryCarveout, 75));
    RT_OK(cudaDeviceSetLimit(cudaLimitStackSize, 16384));
    RT_OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 3 << 20));
    RT_OK(cudaDeviceGetLimit(&fifo, cudaLimitPrintfFifoSize));
    show_pointer("start", "data", reinterpret_cast<uint64_t>(data));
    for (int round = 0; round < rounds; round++) {
        begin_round(round + 1);
        turn_round<<<1, 256, LARGE>>>(data, count);
        RT_OK(cudaGetLastError());
        RT_OK(cudaMemcpy(result, data, sizeof result, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < count / 2; i++) {
            const unsigned low = host[i];
            host[i] = host[count - 1 - i] + 1;
            host[count - 1 - i] = low + 1;
        }
        EXPECT(memcmp(host, result, sizeof host) == 0);
        digest("data", result, sizeof result);
        untouched<<<1, 32, LARGE>>>(data);
        RT_FAILS(cudaErrorInvalidValue, cudaGetLastError());
        RT_OK(cudaFuncGetAttributes(&attributes, turn_round));
        EXPECT(attributes.maxDynamicSharedSizeBytes == LARGE && attributes.preferredShmemCarveout == 75);
        RT_OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
        EXPECT(limit >= 16384);
        RT_OK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
        EXPECT(limit == fifo);
    }
    show_pointer("end", "data", reinterpret_cast<uint64_t>(data));
    return check_failed;
}
