// A thread that has no context asks for events of one, waits for them and ends them, as CatBoost's do: it is
// the event that says which context it is of.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

enum { SEVEN = 0x07070707 };

static CUevent begin, end;
static atomic_bool go_on;
static unsigned *seven;

static void CUDA_CB wait_for_it(void *unused) {
    (void)unused;
    while (!go_on)
        ;
}

static void *without_context(void *unused) {
    CUcontext current = NULL;
    CUdevice device = 0;
    float milliseconds = -1;
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == NULL);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    go_on = true;
    OK(cuEventSynchronize(end));
    EXPECT(*seven == SEVEN);
    OK(cuEventQuery(begin));
    OK(cuEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds >= 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuEventRecord(end, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(NULL));
    OK(cuEventDestroy(begin));
    OK(cuEventDestroy(end));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(end));
    return unused;
}

int main(void) {
    pthread_t thread;
    CUcontext context = NULL;
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, sizeof *seven));
    OK(cuMemHostAlloc((void **)&seven, sizeof *seven, 0));
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventRecord(begin, stream));
    OK(cuLaunchHostFunc(stream, wait_for_it, NULL));
    OK(cuMemsetD32Async(memory, SEVEN, 1, stream));
    OK(cuMemcpyDtoHAsync(seven, memory, sizeof *seven, stream));
    OK(cuEventRecord(end, stream));
    pthread_create(&thread, NULL, without_context, NULL);
    pthread_join(thread, NULL);
    OK(cuMemFreeHost(seven));
    OK(cuMemFree(memory));
    OK(cuStreamDestroy(stream));
    OK(cuDevicePrimaryCtxRelease(0));
    return check_failed || check_repeated;
}
