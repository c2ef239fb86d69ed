// Four KiB of parameters, the most that every CUDA version takes.
#include "check.h"

struct Big {
    unsigned words[1022];
};

__global__ void sum(unsigned *out, Big big) {
    unsigned total = 0;
    for (int i = threadIdx.x; i < 1022; i += 32)
        total = total * 17 + big.words[i];
    out[threadIdx.x] = total;
}

int main() {
    static Big big;
    unsigned *device, out[32], wrong = 0;
    for (unsigned i = 0; i < 1022; i++)
        big.words[i] = i * i + 1;
    RT_OK(cudaMalloc(&device, sizeof out));
    sum<<<1, 32>>>(device, big);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    for (unsigned thread = 0; thread < 32; thread++) {
        unsigned total = 0;
        for (unsigned i = thread; i < 1022; i += 32)
            total = total * 17 + big.words[i];
        wrong += out[thread] != total;
    }
    EXPECT(wrong == 0);
    digest("sums", out, sizeof out);
    return check_failed;
}
