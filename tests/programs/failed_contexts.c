// Three contexts on one device: what fails in one has failed in all of them, whoever asks and whatever is
// current; so has what would be made then. With the last of them the failure is gone.
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

static void has_failed(CUcontext which, int i) {
    CUevent event;
    CUmodule loaded;
    CUdeviceptr more = 0;
    unsigned value;
    OK(cuCtxSetCurrent(which));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, LAUNCH(count_up[i], 2, 4, NULL, &counter[i]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoH(&value, counter[i], 4));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&more, 4096));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(counter[i]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventCreate(&event, CU_EVENT_DEFAULT));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuModuleLoadData(&loaded, kernels_ptx));
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
    works(context, 0, 1);
    fail(&stream, &event);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(event));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize_v2(own[0]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoHAsync(&word, counter[1], 4, stream));
    has_failed(own[0], 1);
    has_failed(own[1], 2);
    has_failed(context, 0);
    OK(cuCtxDestroy(own[0]));
    has_failed(own[1], 2);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxCreate(&again, NULL, CU_CTX_SCHED_AUTO, device));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFreeHost(locked));
    OK(cuCtxDestroy(own[1]));
    has_failed(context, 0);
    OK(cuDevicePrimaryCtxRelease(device));
    start();
    furnish(0);
    works(context, 0, 1);
    OK(cuCtxCreate(&own[0], NULL, CU_CTX_SCHED_AUTO, device));
    furnish(1);
    works(own[0], 1, 1);
    return check_failed;
}
