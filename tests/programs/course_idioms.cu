// What courses and samples do in passing, and nothing else did: a kernel prints and a blocking copy is all
// that waits for it; memory is given back in stream order behind a callback while more is allocated; a
// variable is asked for before and after cudaDeviceReset.
//
// compile: -Wno-deprecated-declarations
#include "check.h"

__device__ int counter = 41;

__global__ void speak(int *data) {
    printf("said by the kernel\n");
    *data = 7;
}

__global__ void add(int *to, const int *what) {
    to[threadIdx.x] += *what;
}

static void CUDART_CB seen(cudaStream_t, cudaError_t, void *count) {
    ++*(int *)count;
}

static void prints_before_a_copy() {
    int *data, value = 0;
    RT_OK(cudaMalloc(&data, 4));
    speak<<<1, 1>>>(data);
    RT_OK(cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost)); // what was printed is out when this returns
    EXPECT(value == 7);
    RT_OK(cudaFree(data));
}

static void freed_behind_callbacks() {
    enum { STREAMS = 4, THREADS = 64 };
    int calls[STREAMS] = {}, *results[STREAMS];
    cudaStream_t streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        int *sums, *what, value = i + 1;
        RT_OK(cudaStreamCreate(&streams[i]));
        RT_OK(cudaHostAlloc((void **)&results[i], THREADS * sizeof(int), cudaHostAllocPortable));
        RT_OK(cudaMallocAsync(&sums, THREADS * sizeof(int), streams[i]));
        RT_OK(cudaMemsetAsync(sums, 0, THREADS * sizeof(int), streams[i]));
        RT_OK(cudaMallocAsync(&what, sizeof value, streams[i]));
        RT_OK(cudaMemcpyAsync(what, &value, sizeof value, cudaMemcpyHostToDevice, streams[i]));
        add<<<1, THREADS, 0, streams[i]>>>(sums, what);
        RT_OK(cudaMemcpyAsync(results[i], sums, THREADS * sizeof(int), cudaMemcpyDeviceToHost, streams[i]));
        RT_OK(cudaStreamAddCallback(streams[i], seen, &calls[i], 0));
        RT_OK(cudaFreeAsync(sums, streams[i]));
        RT_OK(cudaFreeAsync(what, streams[i]));
    }
    RT_OK(cudaDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++)
        EXPECT(calls[i] == 1 && results[i][0] == i + 1 && results[i][THREADS - 1] == i + 1);
}

static void asked_for_again_after_a_reset() {
    int value = 5;
    RT_OK(cudaMemcpyToSymbol(counter, &value, sizeof value));
    RT_OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    EXPECT(value == 5);
    RT_OK(cudaDeviceReset());
    RT_OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    EXPECT(value == 41);
}

int main() {
    prints_before_a_copy();
    freed_behind_callbacks();
    asked_for_again_after_a_reset();
    return check_failed;
}
