// printf from a kernel: every line arrives by the next synchronisation, in no promised order.
//
// compare: sorted
#include "check.h"

__global__ void speak(int *data, const char *) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i * i;
    if (i % 4 == 1)
        printf("thread %d of block %d: square %d, half %.2f, %s %c 0x%llx\n", threadIdx.x, blockIdx.x,
               data[i], i / 2.0, i % 8 == 1 ? "odd" : "even", 'a' + i, 0x123456789abcull + i);
}

int main() {
    int *data, values[16];
    RT_OK(cudaMalloc(&data, sizeof values));
    RT_OK(cudaMemset(data, 0, sizeof values));
    fflush(stdout);
    speak<<<2, 8>>>(data, nullptr);
    RT_OK(cudaDeviceSynchronize());
    RT_OK(cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost));
    EXPECT(values[15] == 225);
    return check_failed;
}
