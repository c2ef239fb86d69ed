// A serverless function that is made of waiting, for experiments on who shares a GPU with whom.
//
//   function DOWNLOAD WORK DUTY MEGABYTES
//
// Downloads for so many seconds (before it touches the device), then works for so many seconds on a GPU of
// its own, in rounds of 20 ms of which the device is busy for the part DUTY. Checks that its memory is what
// it wrote.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) {                                                                         \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                             \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (0)

constexpr double ROUND = 0.020;

__global__ void occupy(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("nanosleep.u32 200000;");
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

static void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

int main(int count, char **arguments) {
    if (count != 5) {
        std::fprintf(stderr, "usage: function DOWNLOAD WORK DUTY MEGABYTES\n");
        return 2;
    }
    double download = std::atof(arguments[1]), work = std::atof(arguments[2]), duty = std::atof(arguments[3]);
    size_t words = static_cast<size_t>(std::atof(arguments[4]) * (1 << 20)) / sizeof(unsigned);
    sleep_for(download);
    unsigned *memory;
    CHECK(cudaMalloc(&memory, words * sizeof(unsigned)));
    std::vector<unsigned> content(words), after(words);
    for (size_t i = 0; i < words; i++)
        content[i] = static_cast<unsigned>(i * 2654435761u);
    CHECK(cudaMemcpy(memory, content.data(), words * sizeof(unsigned), cudaMemcpyHostToDevice));
    for (double done = 0; done < work; done += ROUND) {
        occupy<<<1, 1>>>(static_cast<unsigned long long>(ROUND * duty * 1e9));
        CHECK(cudaDeviceSynchronize());
        sleep_for(ROUND * (1 - duty));
    }
    CHECK(cudaMemcpy(after.data(), memory, words * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(memory));
    if (after != content) {
        std::fprintf(stderr, "the memory is not what it was\n");
        return 1;
    }
    std::puts("ok");
    return 0;
}
