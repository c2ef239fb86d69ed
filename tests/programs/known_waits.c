// What a wait has told is known: an event that was seen to be complete, a stream that was seen to be idle.
// What comes after that is waited for again.
#include "driver.h"

enum { COUNT = 1 << 14, DELAY = 200000 };

int main(void) {
    start();
    CUfunction slow = kernel("slow_copy");
    CUdeviceptr from = allocate(4 * COUNT), to = allocate(4 * COUNT);
    CUstream stream, other;
    CUevent event;
    unsigned count = COUNT, delay = DELAY, value, round = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventQuery(event)); // never recorded: complete
    for (round = 1; round <= 4; round++) {
        QUIET(cuMemsetD32Async(from, round, COUNT, stream));
        QUIET(LAUNCH(slow, 1, 32, stream, &to, &from, &count, &delay));
        QUIET(cuEventRecord(event, stream));
        if (round % 2) {
            QUIET(cuEventSynchronize(event));
        } else {
            while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            }
        }
        QUIET(cuEventQuery(event));
        QUIET(cuEventQuery(event));
        QUIET(cuStreamSynchronize(other)); // another's is nothing to this one
        QUIET(cuMemcpyDtoHAsync(&value, to + 4 * (COUNT - 1), 4, other));
        EXPECT(value == round);
        QUIET(cuStreamSynchronize(other));
        QUIET(cuStreamSynchronize(other));
    }
    // after a blocking copy the stream is idle, and then it is not
    for (round = 5; round <= 8; round++) {
        QUIET(cuMemsetD32Async(from, round, COUNT, NULL));
        QUIET(LAUNCH(slow, 1, 32, NULL, &to, &from, &count, &delay));
        QUIET(cuStreamSynchronize(NULL));
        QUIET(cuMemcpyDtoH(&value, to, 4));
        QUIET(cuStreamSynchronize(NULL));
        EXPECT(value == round);
        QUIET(LAUNCH(slow, 1, 32, stream, &from, &to, &count, &delay));
        QUIET(cuEventRecord(event, stream));
        QUIET(cuStreamWaitEvent(other, event, 0));
        QUIET(cuStreamSynchronize(other));
        QUIET(cuEventQuery(event)); // the other stream's wait has waited for it
    }
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(other));
    return check_failed;
}
