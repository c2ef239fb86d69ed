// Variables and constants whose addresses the program never asks for: its kernels alone use them.
#include "rounds.h"

enum { COUNT = 256 };

__device__ unsigned history[COUNT];
__device__ unsigned long long total = 7;
__constant__ unsigned factors[4] = {3, 5, 11, 13};

__global__ void work(unsigned *data, unsigned round) {
    const unsigned i = threadIdx.x;
    history[i] = history[i] * factors[(i + round) % 4] + i;
    data[i] = history[i];
    atomicAdd(&total, history[i] % 1000);
}

__global__ void tell(unsigned long long *to) {
    *to = total;
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    const unsigned factors_here[4] = {3, 5, 11, 13};
    unsigned *data, host[COUNT] = {}, got[COUNT];
    unsigned long long *sum, total_here = 7, total_there;
    RT_OK(cudaMalloc(&data, sizeof host));
    RT_OK(cudaMalloc(&sum, sizeof *sum));
    show_pointer("start", "data", reinterpret_cast<uint64_t>(data));
    for (int round = 0; round < rounds; round++) {
        begin_round(round + 1);
        work<<<1, COUNT>>>(data, round);
        tell<<<1, 1>>>(sum);
        RT_OK(cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost));
        RT_OK(cudaMemcpy(&total_there, sum, sizeof total_there, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < COUNT; i++) {
            host[i] = host[i] * factors_here[(i + round) % 4] + i;
            total_here += host[i] % 1000;
        }
        EXPECT(memcmp(got, host, sizeof host) == 0);
        EXPECT(total_there == total_here);
        digest("data", got, sizeof got);
    }
    show_pointer("end", "data", reinterpret_cast<uint64_t>(data));
    return check_failed;
}
