// A serverless function that is made of waiting, for experiments on who shares a GPU with whom.
//
//   function READY WORK DUTY MEGABYTES
//
// Has downloaded its data when the monotonic clock says READY and only then touches the device; works for so
// many seconds on a GPU of its own, in rounds of 20 ms of which the device is busy for the part DUTY; checks
// that its memory is what it wrote. Prints its process, when it had a GPU, when it was done (by that clock),
// and how many seconds longer than on a GPU of its own its kernels took.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>
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

// Computes nothing: the simulated devices share the host's cores. The longest sleep that CUDA knows is 1 ms.
__global__ void occupy(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (now = begin; now - begin < nanoseconds;) {
        unsigned long long left = nanoseconds - (now - begin);
        asm volatile("nanosleep.u32 %0;" : : "r"(left < 1000000 ? static_cast<unsigned>(left) : 1000000));
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    }
}

using Seconds = std::chrono::duration<double>;

static double now() {
    return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void sleep_for(double seconds) {
    std::this_thread::sleep_for(Seconds(seconds));
}

int main(int count, char **arguments) {
    if (count != 5) {
        std::fprintf(stderr, "usage: function READY WORK DUTY MEGABYTES\n");
        return 2;
    }
    double ready = std::atof(arguments[1]), work = std::atof(arguments[2]), duty = std::atof(arguments[3]);
    size_t words = static_cast<size_t>(std::atof(arguments[4]) * (1 << 20)) / sizeof(unsigned);
    std::vector<unsigned> content(words), after(words);
    for (size_t i = 0; i < words; i++)
        content[i] = static_cast<unsigned>(i * 2654435761u);
    sleep_for(ready - now());
    unsigned *memory;
    CHECK(cudaMalloc(&memory, words * sizeof(unsigned)));
    double placed = now(), waited = 0;
    CHECK(cudaMemcpy(memory, content.data(), words * sizeof(unsigned), cudaMemcpyHostToDevice));
    for (double done = 0; done < work; done += ROUND) {
        double launched = now();
        occupy<<<1, 1>>>(static_cast<unsigned long long>(ROUND * duty * 1e9));
        CHECK(cudaDeviceSynchronize());
        waited += now() - launched - ROUND * duty;
        sleep_for(ROUND * (1 - duty));
    }
    CHECK(cudaMemcpy(after.data(), memory, words * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(memory));
    double done = now();
    if (after != content) {
        std::fprintf(stderr, "the memory is not what it was\n");
        return 1;
    }
    std::printf("%d %.3f %.3f %.3f\n", getpid(), placed, done, waited);
    return 0;
}
