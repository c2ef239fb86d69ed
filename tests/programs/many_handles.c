// Thousands of streams and events alive at once, destroyed in another order than created, and made again.
#include "driver.h"

enum { STREAMS = 500, EVENTS = 5000, ROUNDS = 3 };

int main(void) {
    static CUstream streams[STREAMS];
    static CUevent events[EVENTS];
    unsigned total = 0;
    start();
    CUfunction count_atomically = kernel("count_atomically");
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuCtxSynchronize());
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STREAMS; i++) {
            QUIET(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
            QUIET(LAUNCH(count_atomically, 1, 1, streams[i], &counter));
        }
        for (int i = 0; i < EVENTS; i++) {
            QUIET(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
            QUIET(cuEventRecord(events[i], streams[i % STREAMS]));
        }
        for (int i = 0; i < EVENTS; i++)
            QUIET(cuEventSynchronize(events[(i * 1237) % EVENTS]));
        QUIET(cuMemcpyDtoH(&total, counter, 4));
        EXPECT(total == STREAMS * (round + 1));
        for (int i = 0; i < EVENTS; i++)
            QUIET(cuEventDestroy(events[(i * 1237) % EVENTS]));
        for (int i = 0; i < STREAMS; i++)
            QUIET(cuStreamDestroy(streams[(i * 7) % STREAMS]));
    }
    return check_failed;
}
