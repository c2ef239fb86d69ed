// Streams, events and modules are destroyed while work that needs them is still queued: the work is done all
// the same.
#include "driver.h"

enum { WORDS = 2048, ROUNDS = 10 };

int main(void) {
    static unsigned words[WORDS];
    unsigned count = WORDS, delay = 20000, factor = 2, term = 1, wrong = 0, expected = 3;
    CUstream last;
    start();
    CUdeviceptr a = allocate(sizeof words), b = allocate(sizeof words);
    OK(cuStreamCreate(&last, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32Async(a, expected, WORDS, last));
    for (unsigned round = 0; round < ROUNDS; round++) {
        CUstream stream;
        CUevent before, after;
        CUmodule own;
        CUfunction slow_copy, affine;
        QUIET(cuModuleLoadData(&own, kernels_ptx));
        QUIET(cuModuleGetFunction(&slow_copy, own, "slow_copy"));
        QUIET(cuModuleGetFunction(&affine, own, "affine"));
        QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        QUIET(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
        QUIET(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
        QUIET(cuEventRecord(before, last));
        QUIET(cuStreamWaitEvent(stream, before, 0));
        QUIET(cuEventDestroy(before));
        QUIET(LAUNCH(slow_copy, 1, 64, stream, &b, &a, &count, &delay));
        QUIET(LAUNCH(affine, WORDS / 256, 256, stream, &b, &count, &factor, &term));
        QUIET(cuMemcpyDtoDAsync(a, b, sizeof words, stream));
        QUIET(cuEventRecord(after, stream));
        QUIET(cuStreamWaitEvent(last, after, 0));
        QUIET(cuEventDestroy(after));
        QUIET(cuStreamDestroy(stream));
        QUIET(cuModuleUnload(own));
        expected = expected * factor + term;
    }
    OK(cuStreamSynchronize(last));
    OK(cuMemcpyDtoH(words, a, sizeof words));
    for (int i = 0; i < WORDS; i++)
        wrong += words[i] != expected;
    EXPECT(wrong == 0);
    return check_failed;
}
