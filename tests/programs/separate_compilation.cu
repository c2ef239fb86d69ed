// Relocatable device code: the kernel calls a __device__ function through the device linker, and a pointer to
// one.
//
// compile: -rdc=true
#include "check.h"

typedef int (*operation)(int, int);
extern __device__ int combine(int a, int b);
__device__ int subtract(int a, int b) {
    return a - b;
}
__device__ operation chosen = subtract;

__global__ void apply(int *data) {
    const int i = threadIdx.x;
    data[i] = combine(data[i], i) + chosen(i, 5);
}

__device__ __noinline__ int combine(int a, int b) {
    return a * 3 + b;
}

int main() {
    int *device, data[32], wrong = 0;
    for (int i = 0; i < 32; i++)
        data[i] = i * i;
    RT_OK(cudaMalloc(&device, sizeof data));
    RT_OK(cudaMemcpy(device, data, sizeof data, cudaMemcpyHostToDevice));
    apply<<<1, 32>>>(device);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(data, device, sizeof data, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        wrong += data[i] != i * i * 3 + i + i - 5;
    EXPECT(wrong == 0);
    return check_failed;
}
