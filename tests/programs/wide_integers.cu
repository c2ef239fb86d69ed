// Integers of 128 bits: products, quotients and remainders as on the host. The division that NVVM brings
// subtracts with a borrow and adds what was carried.
#include <vector>

#include "check.h"

typedef unsigned __int128 wide;

struct results {
    wide product, quotient, rest;
    __int128 signed_quotient;
};

__host__ __device__ results compute(wide x, wide y) {
    return {x * y, x / y, x % y, (__int128)x / (__int128)y};
}

__global__ void all(const wide *numbers, results *to, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = compute(numbers[2 * i], numbers[2 * i + 1]);
}

int main() {
    constexpr int COUNT = 2000;
    std::vector<wide> numbers(2 * COUNT);
    uint64_t state = 1;
    for (int i = 0; i < 2 * COUNT; i++) {
        for (int half = 0; half < 2; half++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            numbers[i] = numbers[i] << 64 | (state ^ state >> 29);
        }
        numbers[i] = (numbers[i] >> state % 127) | 1; // of every length, never 0
    }
    wide *device;
    results *to;
    RT_OK(cudaMalloc(&device, numbers.size() * sizeof(wide)));
    RT_OK(cudaMalloc(&to, COUNT * sizeof(results)));
    RT_OK(cudaMemcpy(device, numbers.data(), numbers.size() * sizeof(wide), cudaMemcpyHostToDevice));
    all<<<(COUNT + 127) / 128, 128>>>(device, to, COUNT);
    std::vector<results> got(COUNT);
    RT_OK(cudaMemcpy(got.data(), to, COUNT * sizeof(results), cudaMemcpyDeviceToHost));
    int products = 0, quotients = 0, rests = 0, negative = 0;
    for (int i = 0; i < COUNT; i++) {
        const results wanted = compute(numbers[2 * i], numbers[2 * i + 1]);
        products += got[i].product != wanted.product;
        quotients += got[i].quotient != wanted.quotient;
        rests += got[i].rest != wanted.rest;
        negative += got[i].signed_quotient != wanted.signed_quotient;
    }
    EXPECT(products == 0);
    EXPECT(quotients == 0);
    EXPECT(rests == 0);
    EXPECT(negative == 0);
    RT_OK(cudaFree(device));
    RT_OK(cudaFree(to));
    return check_failed;
}
