// Calls in a stream of another context than the current one: copies with arrays and functions go that
// stream's way, also when it fails meanwhile.
#include "driver.h"

enum { WIDTH = 16, HEIGHT = 4, BYTES = WIDTH * HEIGHT };

static CUcontext own;
static CUstream theirs;
static CUfunction increase;
static CUarray plane, line;
static CUdeviceptr memory, word, counter;
static unsigned char bytes[BYTES], back[BYTES];
static const CUdeviceptr nowhere = 8;
static int called;

static void CUDA_CB function(void *data) {
    ++*(int *)data;
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *data) {
    (void)stream, (void)status;
    ++*(int *)data;
}

static void make_arrays(void) {
    CUDA_ARRAY_DESCRIPTOR flat = {WIDTH, HEIGHT, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUDA_ARRAY_DESCRIPTOR thin = {BYTES, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate(&plane, &flat));
    OK(cuArrayCreate(&line, &thin));
}

static CUDA_MEMCPY2D copy(CUmemorytype from, CUmemorytype to, void *host) {
    return (CUDA_MEMCPY2D){.srcMemoryType = from,
                           .srcHost = host,
                           .srcDevice = memory,
                           .srcPitch = WIDTH,
                           .srcArray = plane,
                           .dstMemoryType = to,
                           .dstHost = host,
                           .dstDevice = memory,
                           .dstPitch = WIDTH,
                           .dstArray = plane,
                           .WidthInBytes = WIDTH,
                           .Height = HEIGHT};
}

// What each of them says is left open: that context may have failed by then, or the call be refused.
static void try_all(void) {
    CUDA_MEMCPY2D in = copy(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY, bytes);
    CUDA_MEMCPY2D within = copy(CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, NULL);
    CUDA_MEMCPY2D out = copy(CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST, back);
    CUevent event = NULL, other_event = NULL;
    CUdeviceptr taken = 0;
    cuMemcpy2DAsync(&in, theirs);
    cuMemcpy2DAsync(&within, theirs);
    cuMemcpy2DAsync(&out, theirs);
    cuMemcpyHtoAAsync(line, 0, bytes, BYTES, theirs);
    cuMemcpyAtoHAsync(back, line, 0, BYTES, theirs);
    cuMemsetD8Async(memory, 1, BYTES, theirs);
    cuMemcpyDtoDAsync(memory, memory + 32, 8, theirs);
    cuMemcpyHtoDAsync(memory, bytes, BYTES, theirs);
    cuMemcpyDtoHAsync(back, memory, BYTES, theirs);
    cuStreamWriteValue32(theirs, word, 1, 0);
    cuStreamWaitValue32(theirs, word, 0, CU_STREAM_WAIT_VALUE_GEQ);
    cuLaunchHostFunc(theirs, function, &called);
    cuStreamAddCallback(theirs, callback, &called, 0);
    cuMemAllocAsync(&taken, 4096, theirs);
    if (taken != 0)
        cuMemFreeAsync(taken, theirs);
    cuEventCreate(&event, CU_EVENT_DEFAULT);
    cuEventCreate(&other_event, CU_EVENT_DEFAULT);
    cuEventRecord(event, NULL);
    cuStreamWaitEvent(theirs, event, 0);
    cuEventRecord(other_event, theirs);
    LAUNCH(increase, 1, 1, theirs, &word);
    cuStreamQuery(theirs);
    cuStreamSynchronize(theirs);
    cuEventDestroy(event);
    cuEventDestroy(other_event);
}

static void works(const char *when, unsigned wanted) {
    unsigned value = 0;
    printf("%s\n", when);
    OK(cuCtxSynchronize());
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == wanted);
    OK(cuCtxSynchronize());
}

static void another_that_is_well(void) {
    CUDA_MEMCPY2D in = copy(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY, bytes);
    CUDA_MEMCPY2D within = copy(CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, NULL);
    CUDA_MEMCPY2D out = copy(CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST, back);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 7);
    OK(cuMemcpyHtoAAsync(line, 0, bytes, BYTES, theirs));
    OK(cuMemcpy2DAsync(&in, theirs));
    OK(cuMemsetD8Async(memory, 0, BYTES, theirs));
    OK(cuMemcpy2DAsync(&within, theirs));
    memset(back, 0, BYTES);
    OK(cuMemcpy2DAsync(&out, theirs));
    OK(cuStreamSynchronize(theirs));
    EXPECT(memcmp(back, bytes, BYTES) == 0);
    memset(back, 0, BYTES);
    OK(cuMemcpyDtoH(back, memory, BYTES));
    EXPECT(memcmp(back, bytes, BYTES) == 0);
    memset(back, 0, BYTES);
    OK(cuMemcpyAtoHAsync(back, line, 0, BYTES, theirs));
    OK(cuStreamSynchronize(theirs));
    EXPECT(memcmp(back, bytes, BYTES) == 0);
    called = 0;
    OK(cuLaunchHostFunc(theirs, function, &called));
    OK(cuStreamSynchronize(theirs));
    EXPECT(called == 1);
}

static void make_own(void) {
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
}

static void fail(void) {
    CUmodule there;
    CUfunction count_up;
    OK(cuModuleLoadData(&there, kernels_ptx));
    OK(cuModuleGetFunction(&count_up, there, "count_up"));
    OK(LAUNCH(count_up, 1, 1, theirs, (void *)&nowhere));
}

int main(void) {
    start();
    increase = kernel("count_up");
    memory = allocate(BYTES);
    word = allocate(4);
    counter = allocate(4);
    OK(cuMemsetD32(word, 0, 1));
    OK(cuMemsetD32(counter, 0, 1));
    make_arrays();
    make_own();
    OK(cuCtxSetCurrent(context));
    another_that_is_well();
    works("before", 1);

    OK(cuCtxSetCurrent(own));
    fail();
    OK(cuCtxSetCurrent(context));
    try_all(); // perhaps before it fails
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(theirs));
    try_all();
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    return check_failed;
}
