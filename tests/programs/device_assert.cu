// assert() inside a kernel: silent while it holds, cudaErrorAssert once it does not.
#include <cassert>

#include "check.h"

__global__ void count_positive(int *data) {
    assert(data[0] >= 0);
    data[0] += 1;
}

int main() {
    int *data, value = 0;
    RT_OK(cudaMalloc(&data, sizeof *data));
    RT_OK(cudaMemset(data, 0, sizeof *data));
    count_positive<<<1, 1>>>(data);
    RT_OK(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 1);
    RT_OK(cudaMemset(data, 0xff, sizeof *data));
    count_positive<<<1, 1>>>(data);
    RT_FAILS(cudaErrorAssert, cudaDeviceSynchronize());
    RT_FAILS(cudaErrorAssert, cudaMemset(data, 0, sizeof *data));
    return check_failed;
}
