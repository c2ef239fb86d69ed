// While a stream waits for the program, other streams allocate, free and work as they did before: what was
// freed is taken again without a wait for that stream.
#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"

enum { ROUNDS = 4 };

static const size_t LARGE = 8 << 20, SMALL = 64 << 10;
static CUstream gated, other;
static CUdeviceptr gate;
static atomic_int opened;

static void CUDA_CB until_opened(void *unused) {
    (void)unused;
    while (!atomic_load(&opened)) {
    }
}

static void work(CUdeviceptr memory, size_t bytes) {
    unsigned last = 0;
    QUIET(cuMemsetD32Async(memory, 7, bytes / 4, other));
    QUIET(cuMemcpyDtoHAsync(&last, memory + bytes - 4, 4, other));
    QUIET(cuStreamSynchronize(other));
    if (last != 7)
        check_failed = 1;
}

static void plain(size_t bytes) {
    CUdeviceptr memory = allocate(bytes);
    work(memory, bytes);
    QUIET(cuMemFree(memory));
}

static void ordered(size_t bytes) {
    CUdeviceptr memory = 0;
    QUIET(cuMemAllocAsync(&memory, bytes, other));
    work(memory, bytes);
    QUIET(cuMemFreeAsync(memory, other));
}

// Nothing is freed at once meanwhile: that waits for all streams.
static void beside(void) {
    CUdeviceptr small = allocate(SMALL), large = allocate(LARGE);
    work(small, SMALL);
    work(large, LARGE);
    for (int i = 0; i < ROUNDS; i++) {
        ordered(SMALL);
        ordered(LARGE);
    }
}

int main(void) {
    start();
    gate = allocate(4);
    OK(cuStreamCreate(&gated, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32(gate, 0, 1));
    OK(cuStreamSynchronize(NULL));
    for (int i = 0; i < ROUNDS; i++) {
        plain(SMALL);
        plain(LARGE);
        ordered(SMALL);
        ordered(LARGE);
    }
    OK(cuLaunchHostFunc(gated, until_opened, NULL));
    beside();
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(gated));
    atomic_store(&opened, 1);
    OK(cuStreamSynchronize(gated));

    for (int i = 0; i < ROUNDS; i++) {
        plain(SMALL);
        plain(LARGE);
        ordered(SMALL);
        ordered(LARGE);
    }
    OK(cuStreamWaitValue32(gated, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    beside();
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(gated));
    OK(cuStreamWriteValue32(other, gate, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(cuStreamSynchronize(gated));
    expect_it_still_works();
    return check_failed;
}
