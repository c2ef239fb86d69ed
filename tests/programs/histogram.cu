// Atomics of all kinds on global and shared memory: results do not depend on who comes first.
#include <algorithm>
#include <vector>

#include "check.h"

struct Totals {
    unsigned bins[256];
    unsigned long long sum;
    int smallest, largest;
    unsigned bits, parity, wrapped, taken;
    float halves;
    double quarters;
};

__global__ void histogram(const unsigned char *data, int count, Totals *totals) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int value = data[i];
        atomicAdd(&bins[value], 1u);
        atomicAdd(&totals->sum, static_cast<unsigned long long>(value));
        atomicMin(&totals->smallest, value - 300);
        atomicMax(&totals->largest, value);
        atomicOr(&totals->bits, 1u << (value % 32));
        atomicXor(&totals->parity, static_cast<unsigned>(value));
        atomicInc(&totals->wrapped, 999u);
        atomicAdd(&totals->halves, 0.5f);
        atomicAdd(&totals->quarters, 0.25);
        unsigned seen = totals->taken, old;
        do {
            old = seen;
            seen = atomicCAS(&totals->taken, old, old + 3);
        } while (seen != old);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&totals->bins[i], bins[i]);
}

int main() {
    constexpr int COUNT = 100000;
    std::vector<unsigned char> data(COUNT);
    Totals totals, expected = {};
    expected.largest = 0;
    for (int i = 0; i < COUNT; i++) {
        data[i] = static_cast<unsigned char>((i * 2654435761u) >> 13);
        const int value = data[i];
        expected.bins[value]++;
        expected.sum += value;
        expected.smallest = std::min(expected.smallest, value - 300);
        expected.largest = std::max(expected.largest, value);
        expected.bits |= 1u << (value % 32);
        expected.parity ^= value;
    }
    expected.wrapped = COUNT % 1000;
    expected.taken = COUNT * 3;
    expected.halves = COUNT * 0.5f;
    expected.quarters = COUNT * 0.25;
    unsigned char *device;
    Totals *device_totals;
    RT_OK(cudaMalloc(&device, COUNT));
    RT_OK(cudaMalloc(&device_totals, sizeof totals));
    RT_OK(cudaMemcpy(device, data.data(), COUNT, cudaMemcpyHostToDevice));
    RT_OK(cudaMemset(device_totals, 0, sizeof totals));
    histogram<<<8, 256>>>(device, COUNT, device_totals);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(&totals, device_totals, sizeof totals, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(totals.bins, expected.bins, sizeof totals.bins) == 0);
    EXPECT(totals.sum == expected.sum);
    EXPECT(totals.smallest == expected.smallest && totals.largest == expected.largest);
    EXPECT(totals.bits == expected.bits && totals.parity == expected.parity);
    EXPECT(totals.wrapped == expected.wrapped && totals.taken == expected.taken);
    EXPECT(totals.halves == expected.halves && totals.quarters == expected.quarters);
    digest("bins", totals.bins, sizeof totals.bins);
    return check_failed;
}
