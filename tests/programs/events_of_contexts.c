// Events between two contexts of one device: a stream of one waits for the other's work, also when the event
// is recorded anew, destroyed, or ends with its context before the wait is over; times of both; whose failure
// it is.
#include "driver.h"

enum { WORDS = 256 };

static CUcontext own;
static CUstream ours, theirs;
static CUdeviceptr gate, data, copied;

static void hold(CUstream stream) {
    OK(cuMemsetD32(gate, 0, 1));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void release(void) {
    CUstream free_one;
    OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWriteValue32(free_one, gate, 1, 0));
    OK(cuStreamSynchronize(free_one));
    OK(cuStreamDestroy(free_one));
}

static void make_own(void) {
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(context));
}

static unsigned first(void) {
    unsigned value = 0;
    QUIET(cuMemcpyDtoH(&value, copied, 4));
    return value;
}

// Ours waits for theirs, which stands at the gate.
static void follows(unsigned value, CUevent event) {
    OK(cuMemsetD32(data, 0, WORDS));
    OK(cuMemsetD32(copied, 0, WORDS));
    hold(theirs);
    OK(cuMemsetD32Async(data, value, WORDS, theirs));
    OK(cuEventRecord(event, theirs));
    OK(cuStreamWaitEvent(ours, event, 0));
    OK(cuMemcpyDtoDAsync(copied, data, WORDS * 4, ours));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(ours));
}

static CUevent event_of(CUcontext which, unsigned flags) {
    CUevent event = NULL;
    OK(cuCtxSetCurrent(which));
    OK(cuEventCreate(&event, flags));
    OK(cuCtxSetCurrent(context));
    return event;
}

int main(void) {
    float elapsed = -1;
    start();
    gate = allocate(4);
    data = allocate(WORDS * 4);
    copied = allocate(WORDS * 4);
    OK(cuStreamCreate(&ours, CU_STREAM_NON_BLOCKING));
    make_own();
    CUevent event = event_of(own, CU_EVENT_DEFAULT), mine = event_of(context, CU_EVENT_DEFAULT);

    printf("an event of theirs\n");
    follows(5, event);
    release();
    OK(cuStreamSynchronize(ours));
    EXPECT(first() == 5);
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(mine, theirs));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, ours));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
    OK(cuEventRecord(mine, ours));
    OK(cuEventSynchronize(mine));
    CALL(cuEventElapsedTime(&elapsed, event, mine));
    CALL(cuEventElapsedTime(&elapsed, mine, event));
    OK(cuEventElapsedTime(&elapsed, event, event));
    EXPECT(elapsed == 0);

    printf("recorded anew\n");
    follows(6, event);
    OK(cuEventRecord(event, theirs));
    release();
    OK(cuStreamSynchronize(ours));
    EXPECT(first() == 6);

    printf("destroyed while it is waited for\n");
    follows(7, event);
    OK(cuEventDestroy(event));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(ours));
    release();
    OK(cuStreamSynchronize(ours));
    EXPECT(first() == 7);

    printf("its stream is destroyed too\n");
    event = event_of(own, CU_EVENT_DISABLE_TIMING);
    follows(8, event);
    OK(cuStreamDestroy(theirs));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    release();
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(ours));
    EXPECT(first() == 8);

    printf("their context ends\n");
    OK(cuCtxDestroy(own));
    OK(cuStreamSynchronize(ours));
    make_own();
    event = event_of(own, CU_EVENT_DEFAULT);
    OK(cuMemsetD32Async(data, 9, WORDS, theirs));
    OK(cuEventRecord(event, theirs));
    OK(cuStreamWaitEvent(ours, event, 0));
    OK(cuMemcpyDtoDAsync(copied, data, WORDS * 4, ours));
    OK(cuCtxDestroy(own));
    OK(cuStreamSynchronize(ours));
    EXPECT(first() == 9);

    printf("never recorded, and far ones\n");
    make_own();
    event = event_of(own, CU_EVENT_DEFAULT);
    OK(cuStreamWaitEvent(ours, event, 0)); // waits for nothing
    OK(cuStreamWaitEvent(NULL, event, 0));
    OK(cuStreamSynchronize(ours));
    OK(cuEventRecord(event, theirs));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuEventElapsedTime(&elapsed, event, event_of(own, CU_EVENT_DISABLE_TIMING)));
    OK(cuEventRecord(mine, NULL));
    OK(cuStreamWaitEvent(theirs, mine, 0));
    OK(cuStreamSynchronize(theirs));
    OK(cuEventQuery(mine));
    OK(cuCtxDestroy(own));
    return check_failed;
}
