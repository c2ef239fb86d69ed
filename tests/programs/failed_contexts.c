// Three contexts on one device: what fails in one is that one's, whoever asks about it and whatever is
// current, and nothing in the others ends by it.
#include <stdatomic.h>
#include <time.h>

#include "driver.h"

enum { COUNT = 1 << 10 };

static CUcontext own[2];
static CUfunction count_up[3]; // of the primary context, then of the own ones
static CUdeviceptr counter[3];
static unsigned *locked; // page-locked memory of the primary context
static const CUdeviceptr nowhere = 8;

static void furnish(int i) {
    CUmodule loaded;
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&count_up[i], loaded, "count_atomically"));
    OK(cuMemAlloc(&counter[i], COUNT * 4));
    OK(cuMemsetD32(counter[i], 0, COUNT));
}

static void works(CUcontext which, int i, unsigned times) {
    unsigned value = 0;
    CUdeviceptr more = 0;
    OK(cuCtxSetCurrent(which));
    OK(LAUNCH(count_up[i], 2, 4, NULL, &counter[i]));
    OK(cuMemcpyDtoH(&value, counter[i], 4));
    EXPECT(value == 8 * times);
    OK(cuMemAlloc(&more, 4096));
    OK(cuCtxSynchronize());
    OK(cuMemFree(more));
}

// The first own context fails, and with it a copy that nobody waits for.
static void fail(CUstream *stream, CUevent *event) {
    OK(cuCtxSetCurrent(own[0]));
    OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(event, CU_EVENT_DEFAULT));
    OK(cuEventRecord(*event, *stream)); // before: behind the launch it may have failed already
    OK(LAUNCH(count_up[1], 1, 1, *stream, (void *)&nowhere));
    cuMemcpyDtoHAsync(locked, counter[1], COUNT * 4, *stream); // whether it has failed by now nobody knows
}

// A context that failed later than anything was asked of it is as good as any other to who asks for another.
static void quietly(void) {
    OK(cuCtxSetCurrent(own[1]));
    OK(LAUNCH(count_up[2], 1, 1, NULL, (void *)&nowhere));
    works(context, 0, 4);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize_v2(own[1]));
    works(context, 0, 5);
    OK(cuCtxDestroy(own[1]));
    works(context, 0, 6);
}

static atomic_int returned;

static void CUDA_CB linger(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    returned = 1;
}

// An event that processes may share is waited for as any other, when a context has failed and is gone.
static void waits(void) {
    CUevent shared;
    OK(cuCtxSetCurrent(context));
    OK(cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuLaunchHostFunc(NULL, linger, NULL));
    OK(cuEventRecord(shared, NULL));
    OK(cuEventSynchronize(shared));
    EXPECT(returned);
    OK(cuEventDestroy(shared));
}

int main(void) {
    CUstream stream;
    CUevent event;
    CUcontext again = NULL;
    unsigned word;
    start();
    furnish(0);
    OK(cuMemHostAlloc((void **)&locked, COUNT * 4, CU_MEMHOSTALLOC_PORTABLE));
    for (int i = 0; i < 2; i++) {
        OK(cuCtxCreate(&own[i], NULL, CU_CTX_SCHED_AUTO, device));
        furnish(i + 1);
    }
    fail(&stream, &event);
    works(context, 0, 1);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(event));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize_v2(own[0]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoHAsync(&word, counter[1], 4, stream));
    works(context, 0, 2);
    works(own[1], 2, 1);
    OK(cuCtxSetCurrent(own[0]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&counter[1], 16));
    OK(cuCtxDestroy(own[0]));
    works(context, 0, 3);
    works(own[1], 2, 2);
    quietly();
    waits();
    OK(cuCtxCreate(&again, NULL, CU_CTX_SCHED_AUTO, device));
    furnish(1);
    works(again, 1, 1);
    OK(cuCtxDestroy(again));
    OK(cuCtxSetCurrent(context));
    OK(cuMemFreeHost(locked));
    return check_failed;
}
