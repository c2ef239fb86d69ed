// An event of the default stream comes after copies to the host in all blocking streams, pageable memory's
// too: once it is complete, by a wait or by queries, their data is there.
#include "driver.h"

enum { STREAMS = 4, COUNT = 1 << 12, DELAY = 100000, ROUNDS = 4 };

int main(void) {
    start();
    static unsigned pageable[STREAMS][COUNT];
    CUfunction slow = kernel("slow_copy");
    CUstream streams[STREAMS];
    CUdeviceptr from[STREAMS], to[STREAMS];
    CUevent event;
    unsigned *pinned, count = COUNT, delay = DELAY;
    OK(cuMemHostAlloc((void **)&pinned, sizeof pageable, 0));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < STREAMS; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
        from[i] = allocate(4 * COUNT);
        to[i] = allocate(4 * COUNT);
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        memset(pinned, 0, sizeof pageable);
        memset(pageable, 0, sizeof pageable);
        for (int i = 0; i < STREAMS; i++) {
            QUIET(cuMemsetD32Async(from[i], round + 100 * i, COUNT, streams[i]));
            QUIET(LAUNCH(slow, 1, 32, streams[i], &to[i], &from[i], &count, &delay));
            QUIET(cuMemcpyDtoHAsync(pinned + i * COUNT, to[i], 4 * COUNT, streams[i]));
        }
        for (int i = 0; i < STREAMS; i++)
            QUIET(cuMemcpyDtoHAsync(pageable[i], to[i], 4 * COUNT, streams[i]));
        QUIET(cuEventRecord(event, NULL));
        if (round % 2) {
            QUIET(cuEventSynchronize(event));
        } else {
            while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            }
        }
        unsigned wrong = 0;
        for (unsigned i = 0; i < STREAMS; i++)
            for (unsigned j = 0; j < COUNT; j++)
                wrong += pinned[i * COUNT + j] != round + 100 * i || pageable[i][j] != round + 100 * i;
        EXPECT(wrong == 0);
    }
    return check_failed;
}
