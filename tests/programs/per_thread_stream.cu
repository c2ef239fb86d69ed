// Built with --default-stream per-thread: each host thread has a default stream of its own, ordered in
// itself.
//
// compile: --default-stream per-thread
#include <thread>
#include <vector>

#include "check.h"

__global__ void affine(unsigned *data, unsigned count, unsigned factor, unsigned term) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = data[i] * factor + term;
}

constexpr unsigned WORDS = 4096, STEPS = 50, THREADS = 6;

static void work(unsigned *words, unsigned seed) {
    unsigned *data;
    RT_QUIET(cudaMalloc(&data, WORDS * 4));
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = i + seed;
    RT_QUIET(cudaMemcpyAsync(data, words, WORDS * 4, cudaMemcpyHostToDevice));
    for (unsigned step = 0; step < STEPS; step++)
        affine<<<WORDS / 256, 256>>>(data, WORDS, step * 2 + 1, seed);
    RT_QUIET(cudaMemcpyAsync(words, data, WORDS * 4, cudaMemcpyDeviceToHost));
    RT_QUIET(cudaStreamSynchronize(cudaStreamPerThread));
    RT_QUIET(cudaFree(data));
}

int main() {
    std::vector<unsigned> words(THREADS * WORDS);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < THREADS; i++)
        threads.emplace_back(work, &words[i * WORDS], i * 1000);
    for (auto &thread : threads)
        thread.join();
    unsigned wrong = 0;
    for (unsigned i = 0; i < THREADS * WORDS; i++) {
        unsigned expected = i % WORDS + i / WORDS * 1000;
        for (unsigned step = 0; step < STEPS; step++)
            expected = expected * (step * 2 + 1) + i / WORDS * 1000;
        wrong += words[i] != expected;
    }
    EXPECT(wrong == 0);
    digest("words", words.data(), words.size() * 4);
    RT_OK(cudaDeviceSynchronize());
    return check_failed;
}
