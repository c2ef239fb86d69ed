// The end of a process: destructors of static objects and functions of atexit free memory, streams and events
// and wait; each call succeeds or says that the runtime is unloading. A thread still allocates meanwhile: it
// calls the driver, because the static runtime dies in a call of its own whose context it has let go at exit.
#include <atomic>
#include <thread>

#include "check.h"
#include <cuda.h>

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

template <typename Call> static Call driver_call(const char *name) {
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    RT_OK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    return (Call)function;
}

static std::atomic<bool> works;

static void work_on(decltype(&cuMemAlloc_v2) allocate, decltype(&cuMemFree_v2) release) {
    CUdeviceptr memory;
    while (allocate(&memory, 4096) == CUDA_SUCCESS && release(memory) == CUDA_SUCCESS)
        works = true;
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
    auto allocate = driver_call<decltype(&cuMemAlloc_v2)>("cuMemAlloc");
    auto release = driver_call<decltype(&cuMemFree_v2)>("cuMemFree");
    auto set_current = driver_call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent");
    CUcontext primary;
    EXPECT(driver_call<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent")(&primary) == CUDA_SUCCESS);
    std::thread([=] {
        set_current(primary);
        work_on(allocate, release);
    }).detach();
    while (!works)
        std::this_thread::yield();
    for (int i = 1; i < 200; i++)
        count<<<1, 1, 0, buffer.stream>>>(buffer.value);
    RT_OK(cudaEventRecord(buffer.event, buffer.stream));
    return check_failed;
}
