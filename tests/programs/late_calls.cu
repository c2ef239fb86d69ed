// The end of a process: destructors of static objects and functions of atexit free memory, streams and events
// and wait, while threads still work; each call succeeds or says that the runtime is unloading.
#include <atomic>
#include <thread>

#include "check.h"

static std::atomic<int> wrong;

static void tolerate(const char *call, cudaError_t result) {
    if (result != cudaSuccess && result != cudaErrorCudartUnloading) {
        printf("FAILED: %s -> %s\n", call, cudaGetErrorName(result));
        fflush(stdout);
        wrong = 1;
    }
}

__global__ void count(int *value) {
    atomicAdd(value, 1);
}

struct Buffer {
    int *value = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;

    ~Buffer() {
        tolerate("cudaEventDestroy", cudaEventDestroy(event));
        tolerate("cudaStreamDestroy", cudaStreamDestroy(stream));
        tolerate("cudaFree", cudaFree(value));
        if (wrong)
            _Exit(1);
    }
};

static Buffer buffer; // destroyed behind what main registers

static void at_exit() {
    int value = 0;
    cudaError_t result = cudaDeviceSynchronize();
    tolerate("cudaDeviceSynchronize", result);
    if (result == cudaSuccess &&
        cudaMemcpy(&value, buffer.value, sizeof value, cudaMemcpyDefault) == cudaSuccess && value != 200)
        wrong = 1;
}

static void work_on() {
    int *memory;
    while (cudaMalloc(&memory, 4096) == cudaSuccess && cudaFree(memory) == cudaSuccess)
        ;
}

int main() {
    RT_OK(cudaMalloc(&buffer.value, 1 << 20));
    RT_OK(cudaMemset(buffer.value, 0, 4));
    RT_OK(cudaStreamCreate(&buffer.stream));
    RT_OK(cudaEventCreate(&buffer.event));
    EXPECT(atexit(at_exit) == 0);
    count<<<1, 1>>>(buffer.value);
    RT_OK(cudaDeviceSynchronize());
    int value = 0;
    RT_OK(cudaMemcpy(&value, buffer.value, sizeof value, cudaMemcpyDefault));
    EXPECT(value == 1);
    std::thread(work_on).detach();
    for (int i = 1; i < 200; i++)
        count<<<1, 1, 0, buffer.stream>>>(buffer.value);
    RT_OK(cudaEventRecord(buffer.event, buffer.stream));
    return check_failed;
}
