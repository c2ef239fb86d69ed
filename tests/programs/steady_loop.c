// A steady loop of everything that must not wait for the server. Under the guest it counts the blocking round
// trips that the loop made; natively there are none to count.
#include <dlfcn.h>

#include "driver.h"
#include "wire/stats.h"

static uint64_t round_trips(void) {
    void (*read_stats)(struct gf_stats *) =
        (void (*)(struct gf_stats *))dlsym(RTLD_DEFAULT, "gpuferry_stats");
    struct gf_stats stats = {0};
    if (read_stats)
        read_stats(&stats);
    return stats.round_trips;
}

static void iteration(CUfunction fill, CUfunction count_up, CUdeviceptr total, unsigned *host) {
    enum { COUNT = 1 << 16 };
    CUdeviceptr scratch, pooled;
    CUstream stream;
    CUevent event;
    size_t free_memory, total_memory;
    unsigned count = COUNT, seed = host[0];
    QUIET(cuMemAlloc(&scratch, COUNT * 4));
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    QUIET(cuEventCreate(&event, CU_EVENT_DEFAULT));
    QUIET(cuMemAllocAsync(&pooled, 4096, stream));
    QUIET(cuMemcpyHtoDAsync(scratch, host, COUNT * 4, stream));
    QUIET(cuMemcpyHtoD(scratch, host, COUNT * 4));
    QUIET(cuMemsetD32Async(scratch, seed, COUNT, stream));
    QUIET(cuMemsetD8(scratch, 1, COUNT));
    QUIET(LAUNCH(fill, COUNT / 256, 256, stream, &scratch, &count, &seed));
    QUIET(LAUNCH(count_up, 1, 1, stream, &total));
    QUIET(cuMemcpyDtoDAsync(pooled, scratch, 4096, stream));
    QUIET(cuEventRecord(event, stream));
    QUIET(cuStreamWaitEvent(NULL, event, 0));
    QUIET(cuMemGetInfo(&free_memory, &total_memory));
    QUIET(cuMemFreeAsync(pooled, stream));
    QUIET(cuEventDestroy(event));
    QUIET(cuStreamDestroy(stream));
    QUIET(cuMemFree(scratch));
}

int main(void) {
    enum { ITERATIONS = 200 };
    unsigned *host, counted = 0;
    start();
    CUfunction fill = kernel("fill"), count_up = kernel("count_up");
    CUdeviceptr total = allocate(4);
    OK(cuMemHostAlloc((void **)&host, 1 << 18, 0));
    memset(host, 3, 1 << 18);
    iteration(fill, count_up, total, host);
    OK(cuMemsetD32(total, 0, 1)); // behind that one's launch, for which the default stream waits
    OK(cuCtxSynchronize());
    const uint64_t before = round_trips();
    for (int i = 0; i < ITERATIONS; i++)
        iteration(fill, count_up, total, host);
    const uint64_t made = round_trips() - before;
    EXPECT(made == 0);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&counted, total, 4));
    EXPECT(counted == ITERATIONS);
    if (dlsym(RTLD_DEFAULT, "gpuferry_stats"))
        fprintf(stderr, "blocking round trips in the loop: %llu, after it: %llu\n", (unsigned long long)made,
                (unsigned long long)(round_trips() - before));
    return check_failed;
}
