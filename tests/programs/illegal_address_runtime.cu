// What the runtime API reports after a kernel read a null pointer: the error stays with the context.
#include "check.h"

__global__ void write(int *where, int value) {
    *where = value;
}

int main() {
    int *data, value = 0;
    RT_OK(cudaMalloc(&data, sizeof *data));
    write<<<1, 1>>>(data, 5);
    RT_OK(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 5);

    write<<<1, 1>>>(nullptr, 6);
    RT_OK(cudaPeekAtLastError());
    RT_FAILS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    RT_FAILS(cudaErrorIllegalAddress, cudaGetLastError());
    RT_FAILS(cudaErrorIllegalAddress, cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    RT_FAILS(cudaErrorIllegalAddress, cudaMalloc(&data, 16));
    RT_FAILS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    return check_failed;
}
