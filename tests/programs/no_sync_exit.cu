// Ends with work in flight and no synchronisation: the exit is quiet, and what was seen before is right.
#include "check.h"

__global__ void increment(unsigned *data, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] += i;
}

int main() {
    constexpr unsigned COUNT = 1 << 16;
    static unsigned host[COUNT];
    unsigned *data;
    RT_OK(cudaMalloc(&data, sizeof host));
    RT_OK(cudaMemset(data, 0, sizeof host));
    increment<<<COUNT / 256, 256>>>(data, COUNT);
    RT_OK(cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost));
    EXPECT(host[COUNT - 1] == COUNT - 1);
    for (int i = 0; i < 200; i++)
        increment<<<COUNT / 256, 256>>>(data, COUNT);
    RT_OK(cudaMemcpyAsync(data, host, sizeof host, cudaMemcpyHostToDevice));
    return check_failed;
}
