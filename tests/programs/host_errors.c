// What host functions must not do and must be told; streams that wait for one by an event, or are destroyed.
#include "driver.h"

#include <stdatomic.h>

static atomic_int held, allocated, named, ran, status_seen = -1;

static void CUDA_CB call_cuda(void *unused) {
    (void)unused;
    CUdeviceptr memory;
    const char *name;
    allocated = cuMemAlloc(&memory, 4);
    named = cuGetErrorName(CUDA_SUCCESS, &name);
}

static void CUDA_CB hold(void *unused) {
    (void)unused;
    while (held) {
    }
}

static void CUDA_CB count(void *by) {
    ran += by ? *(int *)by : 1;
}

static void CUDA_CB note_status(CUstream stream, CUresult status, void *stream_given) {
    ran += stream == *(CUstream *)stream_given ? 1 : 100;
    status_seen = (int)status;
}

static void arguments(CUstream stream) {
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, note_status, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc_v2(stream, count, NULL, 7));
    OK(cuLaunchHostFunc_v2(stream, count, NULL, CU_HOST_TASK_SPINWAIT));
    OK(cuStreamSynchronize(stream));
    EXPECT(ran == 1);
    OK(cuLaunchHostFunc(stream, call_cuda, NULL));
    OK(cuStreamSynchronize(stream));
    EXPECT(allocated == CUDA_ERROR_NOT_PERMITTED && named == CUDA_SUCCESS);
}

// An event behind a function, a stream that waits for it, and one that is destroyed meanwhile.
static void across_streams(CUstream stream) {
    static int ten = 10;
    CUstream other;
    CUevent event;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ran = 0;
    OK(cuLaunchHostFunc(stream, count, &ten));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(cuStreamAddCallback(other, note_status, &other, 0));
    OK(cuStreamSynchronize(other));
    EXPECT(ran == 11 && status_seen == CUDA_SUCCESS);
    OK(cuLaunchHostFunc(other, count, &ten));
    OK(cuStreamDestroy(other));
    OK(cuCtxSynchronize());
    EXPECT(ran == 21);
    OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, count, &ten));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT(ran == 31);
    OK(cuEventDestroy(event));
}

// Of a context that failed, functions are not called any more; callbacks are, and told.
static void after_an_error(CUstream stream) {
    static int hundred = 100;
    CUdeviceptr nowhere = 8;
    ran = 0;
    held = 1; // or the kernel may have failed before the others are there
    OK(cuLaunchHostFunc(stream, hold, NULL));
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &nowhere));
    OK(cuLaunchHostFunc(stream, count, &hundred));
    OK(cuStreamAddCallback(stream, note_status, &stream, 0));
    held = 0;
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    while (!ran) { // whoever waits for the stream need not wait for this
    }
    EXPECT(ran == 1 && status_seen == CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset(device));
}

static void after_a_reset(void) {
    unsigned *page, value = 0;
    CUdeviceptr memory;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    memory = allocate(4);
    OK(cuMemAllocHost((void **)&page, 4));
    *page = 5;
    ran = 0;
    OK(cuLaunchHostFunc(NULL, count, NULL));
    OK(cuMemcpyHtoDAsync(memory, page, 4, NULL));
    OK(cuMemcpyDtoH(&value, memory, 4));
    EXPECT(value == 5 && ran == 1);
}

int main(void) {
    CUstream stream;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    arguments(stream);
    across_streams(stream);
    after_an_error(stream);
    after_a_reset();
    return check_failed;
}
