// cudaDeviceReset after a kernel wrote to a null pointer: asking about the context is no failure, and the
// next call has a new context.
#include "check.h"

__global__ void put(int *where, int value) {
    *where = value;
}

int main() {
    int *data, value = 0;
    RT_OK(cudaMalloc(&data, sizeof *data));
    put<<<1, 1>>>(nullptr, 6);
    RT_FAILS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    RT_CALL(cudaDeviceReset());
    RT_CALL(cudaGetLastError());
    RT_CALL(cudaMalloc(&data, sizeof *data));
    RT_CALL(cudaGetLastError());
    put<<<1, 1>>>(data, 7);
    RT_CALL(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 7);
    return check_failed;
}
