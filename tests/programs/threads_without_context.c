// A thread that has no context asks for events and streams of one, waits for them and ends them, as threads
// of CatBoost and DALI do, and modules, as Blender does, and fills, records and waits in a stream, as
// NVIDIA's cuda::stream, cuda::buffer and cuda::host_launch do, and copies there: it is the object that says
// which context it is of.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

enum { SIX = 0x06060606, SEVEN = 0x07070707, EIGHT = 0x08080808 };

static CUstream stream;
static CUevent begin, end;
static CUcontext context;
static atomic_bool go_on;
static unsigned *seven;
static CUdeviceptr memory;
static atomic_int calls;

static void CUDA_CB wait_for_it(void *unused) {
    (void)unused;
    while (!go_on)
        ;
}

static void CUDA_CB counts(void *unused) {
    (void)unused;
    calls++;
}

static void CUDA_CB is_called(CUstream of, CUresult status, void *unused) {
    (void)unused;
    calls += of == stream && status == CUDA_SUCCESS;
}

static void *without_context(void *unused) {
    CUcontext current = NULL, found = NULL;
    CUdevice device = 9;
    unsigned flags = 0;
    float milliseconds = -1;
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == NULL);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamGetFlags(stream, &flags));
    EXPECT(flags == CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetDevice(stream, &device));
    EXPECT(device == 0);
    OK(cuStreamGetCtx(stream, &found));
    EXPECT(found == context);
    go_on = true;
    OK(cuEventSynchronize(end));
    EXPECT(*seven == SEVEN);
    OK(cuEventQuery(begin));
    OK(cuEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds >= 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuEventRecord(end, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamWaitEvent(NULL, end, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemsetD32Async(memory, 0, 1, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyDtoHAsync(seven, memory, sizeof *seven, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuLaunchHostFunc(NULL, counts, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamAddCallback(NULL, is_called, NULL, 0));
    unsigned six = SIX, pageable = 0;
    CUdeviceptr second = memory + sizeof six;
    OK(cuMemcpyHtoDAsync(memory, &six, sizeof six, stream));
    OK(cuMemcpyDtoDAsync(second, memory, sizeof six, stream));
    OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)seven, second, sizeof six, stream));
    OK(cuMemcpyDtoHAsync(&pageable, second, sizeof six, stream));
    OK(cuLaunchHostFunc(stream, counts, NULL));
    OK(cuStreamAddCallback(stream, is_called, NULL, 0));
    OK(cuStreamSynchronize(stream));
    EXPECT(*seven == SIX && pageable == SIX && calls == 2);
    OK(cuMemsetD32Async(memory, EIGHT, 1, stream));
    OK(cuEventRecord(end, stream));
    OK(cuStreamWaitEvent(stream, end, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamQuery(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamGetFlags(NULL, &flags));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamGetCtx(NULL, &found));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamGetDevice(CU_STREAM_PER_THREAD, &device));
    OK(cuEventDestroy(begin));
    OK(cuEventDestroy(end));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(end));
    OK(cuStreamDestroy(stream));
    OK(cuModuleUnload(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    return unused;
}

int main(void) {
    pthread_t thread;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, 2 * sizeof *seven));
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
    unsigned found = 0;
    OK(cuMemcpyDtoH(&found, memory, sizeof found));
    EXPECT(found == EIGHT);
    OK(cuMemFreeHost(seven));
    OK(cuMemFree(memory));
    OK(cuDevicePrimaryCtxRelease(0));
    return check_failed || check_repeated;
}
