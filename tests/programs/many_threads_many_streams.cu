// Twelve host threads, each with its own streams, events and memory, all at once.
#include <thread>
#include <vector>

#include "check.h"

constexpr int THREADS = 12, STREAMS = 3, STEPS = 30, WORDS = 1024;

__global__ void affine(unsigned *data, unsigned factor, unsigned term) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * factor + term;
}

static void work(unsigned seed, unsigned *result) {
    cudaStream_t streams[STREAMS];
    cudaEvent_t event;
    unsigned *data;
    std::vector<unsigned> host(WORDS, seed);
    RT_QUIET(cudaMalloc(&data, WORDS * 4));
    for (auto &stream : streams)
        RT_QUIET(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RT_QUIET(cudaEventCreate(&event));
    RT_QUIET(cudaMemcpyAsync(data, host.data(), WORDS * 4, cudaMemcpyHostToDevice, streams[0]));
    RT_QUIET(cudaEventRecord(event, streams[0]));
    for (int step = 0; step < STEPS; step++) {
        cudaStream_t stream = streams[step % STREAMS];
        RT_QUIET(cudaStreamWaitEvent(stream, event, 0));
        affine<<<WORDS / 128, 128, 0, stream>>>(data, 2 * step + 1, seed);
        RT_QUIET(cudaEventRecord(event, stream));
    }
    RT_QUIET(cudaEventSynchronize(event));
    RT_QUIET(cudaMemcpy(host.data(), data, WORDS * 4, cudaMemcpyDeviceToHost));
    *result = 0;
    for (unsigned word : host)
        *result += word;
    for (auto &stream : streams)
        RT_QUIET(cudaStreamDestroy(stream));
    RT_QUIET(cudaEventDestroy(event));
    RT_QUIET(cudaFree(data));
}

int main() {
    unsigned results[THREADS], wrong = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(work, i * 17 + 1, &results[i]);
    for (auto &thread : threads)
        thread.join();
    for (int i = 0; i < THREADS; i++) {
        unsigned expected = i * 17 + 1;
        for (int step = 0; step < STEPS; step++)
            expected = expected * (2 * step + 1) + i * 17 + 1;
        wrong += results[i] != expected * WORDS;
    }
    EXPECT(wrong == 0);
    digest("sums", results, sizeof results);
    return check_failed;
}
