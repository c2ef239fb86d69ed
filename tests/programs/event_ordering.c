// A token passes through 16 non-blocking streams, ordered by events alone; each stream starts slowly, so a
// broken order shows in the data.
#include "driver.h"

enum { STREAMS = 16, ROUNDS = 3, WORDS = 512 };

int main(void) {
    static unsigned words[WORDS];
    CUstream streams[STREAMS];
    CUevent events[STREAMS * ROUNDS];
    start();
    CUfunction slow_copy = kernel("slow_copy"), affine = kernel("affine");
    CUdeviceptr a = allocate(sizeof words), b = allocate(sizeof words);
    for (int i = 0; i < STREAMS; i++)
        QUIET(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STREAMS * ROUNDS; i++)
        QUIET(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD32(a, 5, WORDS));
    OK(cuCtxSynchronize());

    unsigned count = WORDS, expected = 5;
    for (int i = 0; i < STREAMS * ROUNDS; i++) {
        CUstream stream = streams[(i * 7) % STREAMS];
        unsigned factor = 3, term = (unsigned)i, delay = i % 3 == 0 ? 100000 : 10;
        if (i > 0)
            QUIET(cuStreamWaitEvent(stream, events[i - 1], 0));
        QUIET(LAUNCH(slow_copy, 2, 64, stream, &b, &a, &count, &delay));
        QUIET(LAUNCH(affine, 2, 256, stream, &b, &count, &factor, &term));
        QUIET(cuEventRecord(events[i], stream));
        CUdeviceptr swap = a;
        a = b;
        b = swap;
        expected = expected * factor + term;
    }
    OK(cuEventSynchronize(events[STREAMS * ROUNDS - 1]));
    OK(cuMemcpyDtoH(words, a, sizeof words));
    unsigned wrong = 0;
    for (int i = 0; i < WORDS; i++)
        wrong += words[i] != expected;
    EXPECT(wrong == 0);
    OK(cuEventQuery(events[0]));
    for (int i = 0; i < STREAMS; i++)
        QUIET(cuStreamDestroy(streams[i]));
    for (int i = 0; i < STREAMS * ROUNDS; i++)
        QUIET(cuEventDestroy(events[i]));
    return check_failed;
}
