// Events between two devices: one waits for what the other does; an event is recorded in streams of its own
// context alone.
//
// suite: devices
#include "driver.h"

enum { COUNT = 1 << 10, BYTES = COUNT * 4, ROUNDS = 30 };

static CUcontext primary[2];
static CUdeviceptr memory[2];
static CUstream stream[2];
static CUevent event[2];
static CUfunction slow_copy[2], affine[2];

static void begin(int i) {
    CUmodule loaded;
    OK(cuDevicePrimaryCtxRetain(&primary[i], i));
    OK(cuCtxSetCurrent(primary[i]));
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&slow_copy[i], loaded, "slow_copy"));
    OK(cuModuleGetFunction(&affine[i], loaded, "affine"));
    OK(cuMemAlloc(&memory[i], 2 * BYTES));
    OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event[i], CU_EVENT_DEFAULT));
}

// Back and forth: each device works on what the other one has left, in order of events alone.
static void pingpong(void) {
    unsigned first[COUNT], back[COUNT], count = COUNT, delay = 20000;
    unsigned factor = 3, term[2] = {1, 7}, value = 5;
    for (unsigned k = 0; k < COUNT; k++)
        first[k] = value;
    QUIET(cuCtxSetCurrent(primary[0]));
    OK(cuMemcpyHtoD(memory[0] + BYTES, first, BYTES));
    for (int round = 0; round < ROUNDS; round++) {
        int i = round % 2, j = 1 - i;
        CUdeviceptr work = memory[i], arrived = memory[i] + BYTES;
        QUIET(cuCtxSetCurrent(primary[i]));
        if (round > 0)
            QUIET(cuStreamWaitEvent(stream[i], event[j], 0));
        QUIET(LAUNCH(slow_copy[i], 1, 256, stream[i], &work, &arrived, &count, &delay));
        QUIET(LAUNCH(affine[i], COUNT / 256, 256, stream[i], &work, &count, &factor, &term[i]));
        QUIET(cuMemcpyPeerAsync(memory[j] + BYTES, primary[j], memory[i], primary[i], BYTES, stream[i]));
        QUIET(cuEventRecord(event[i], stream[i]));
        value = value * factor + term[i];
    }
    OK(cuEventSynchronize(event[(ROUNDS - 1) % 2]));
    QUIET(cuCtxSetCurrent(primary[ROUNDS % 2]));
    OK(cuMemcpyDtoH(back, memory[ROUNDS % 2] + BYTES, BYTES));
    int same = 1;
    for (unsigned k = 0; k < COUNT; k++)
        same &= back[k] == value;
    EXPECT(same);
}

int main(void) {
    float elapsed = 0;
    CUcontext own;
    OK(cuInit(0));
    begin(0);
    begin(1);
    pingpong();
    // whatever is current: an event belongs to its context
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event[0], stream[1]));
    OK(cuCtxSetCurrent(primary[0]));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event[0], stream[1]));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event[1], stream[0]));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event[1], NULL));
    OK(cuEventRecord(event[0], NULL));
    OK(cuCtxCreate(&own, NULL, 0, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event[0], NULL));
    OK(cuEventRecord(event[0], stream[0]));
    OK(cuStreamWaitEvent(stream[1], event[0], 0));
    OK(cuStreamWaitEvent(NULL, event[1], 0));
    OK(cuEventSynchronize(event[0]));
    OK(cuEventQuery(event[0]));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&elapsed, event[0], event[1]));
    OK(cuCtxDestroy(own));
    OK(cuStreamSynchronize(stream[0]));
    OK(cuStreamSynchronize(stream[1]));
    return check_failed;
}
