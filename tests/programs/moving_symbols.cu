// Variables of a module that kernels change, constants that the host changes, and pointers to variables in
// variables and in memory.
#include "rounds.h"

enum { WORDS = 64, WEIGHTS = 16 };

__device__ unsigned counter = 1000;
__device__ unsigned words[WORDS] = {1, 2, 3};
__device__ unsigned large[300000]; // longer than a page of the device
__constant__ unsigned weights[WEIGHTS];
__device__ unsigned *const fixed = &words[5];
__device__ unsigned *wandering = words;

__global__ void step(unsigned round, unsigned **seen) {
    const unsigned i = threadIdx.x;
    words[i] = words[i] * 3 + weights[i % WEIGHTS] + round;
    for (unsigned at = i; at < 300000; at += WORDS)
        large[at] += at ^ round;
    atomicAdd(&counter, 1u);
    __syncthreads();
    if (i == 0) {
        *fixed += 10;
        *wandering += 100;
        wandering = &words[(wandering - words + 1) % WORDS];
        seen[0] = &counter;
        seen[1] = words;
        seen[2] = wandering;
        seen[3] = &large[299999];
    }
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    unsigned host[WORDS] = {1, 2, 3}, now[WORDS], constants[WEIGHTS], count = 0, position = 0;
    static unsigned host_large[300000], large_now[300000];
    unsigned **seen, *places[4];
    void *address;
    RT_OK(cudaMalloc(&seen, sizeof places));
    RT_OK(cudaGetSymbolAddress(&address, words));
    show_pointer("start", "words", reinterpret_cast<uint64_t>(address));
    for (int round = 0; round < rounds; round++) {
        begin_round(round + 1);
        if (round % 2 == 0) { // in odd rounds the constants are those of the round before
            for (unsigned i = 0; i < WEIGHTS; i++)
                constants[i] = i * i + round;
            RT_OK(cudaMemcpyToSymbol(weights, constants, sizeof constants));
        }
        step<<<1, WORDS>>>(round, seen);
        RT_OK(cudaMemcpyFromSymbol(now, words, sizeof now));
        RT_OK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
        RT_OK(cudaMemcpyFromSymbol(large_now, large, sizeof large_now));
        RT_OK(cudaMemcpy(places, seen, sizeof places, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < WORDS; i++)
            host[i] = host[i] * 3 + constants[i % WEIGHTS] + round;
        for (unsigned i = 0; i < 300000; i++)
            host_large[i] += i ^ round;
        host[5] += 10;
        host[position] += 100;
        position = (position + 1) % WORDS;
        EXPECT(memcmp(host, now, sizeof host) == 0);
        EXPECT(memcmp(host_large, large_now, sizeof host_large) == 0);
        EXPECT(count == 1000u + WORDS * (round + 1));
        EXPECT(places[1] == address && places[2] == places[1] + position);
        digest("words", now, sizeof now);
    }
    RT_OK(cudaGetSymbolAddress(&address, large));
    EXPECT(places[3] == static_cast<unsigned *>(address) + 299999);
    RT_OK(cudaGetSymbolAddress(&address, counter));
    EXPECT(places[0] == address);
    RT_OK(cudaGetSymbolAddress(&address, words));
    show_pointer("end", "words", reinterpret_cast<uint64_t>(address));
    return check_failed;
}
