// Captures and threads: what may be called beside one, by the modes of the capture and of the thread; who may
// end it, also when the thread that began it is gone and another one has its place.
#include <pthread.h>

#include "driver.h"

static CUstream stream, other;
static CUdeviceptr memory;
static CUevent event;
static CUstreamCaptureMode mode, own;

static void begin(void) {
    OK(cuStreamBeginCapture(stream, mode));
    OK(cuMemsetD32Async(memory, 1, 4, stream));
}

static void ends(CUresult wanted) {
    CUgraph graph = NULL;
    CUresult result = cuStreamEndCapture(stream, &graph);
    check_result("cuStreamEndCapture", check_name(result), NULL);
    EXPECT(result == wanted && (graph != NULL) == (result == CUDA_SUCCESS));
    if (graph != NULL)
        OK(cuGraphDestroy(graph));
}

static void *begins(void *unused) {
    OK(cuCtxSetCurrent(context));
    begin();
    return unused;
}

// What CUDA calls potentially unsafe.
static void *unsafe(void *unused) {
    CUdeviceptr taken = 0;
    CUstreamCaptureMode before = own;
    int forbidden = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && own == CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult wanted = forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&before));
    EXPECT(before == CU_STREAM_CAPTURE_MODE_GLOBAL); // each thread has its own
    EXPECT(cuMemAlloc(&taken, 4096) == wanted);
    if (taken != 0)
        OK(cuMemFree(taken));
    return unused;
}

static void *asks(void *unused) {
    CUresult wanted =
        mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    OK(cuCtxSetCurrent(context));
    EXPECT(cuEventQuery(event) == wanted);
    return unused;
}

static void *launches(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuMemsetD32Async(memory, 2, 4, other));             // is no wait, and nothing of the capture's
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &memory)); // is part of it, whoever gives it
    return unused;
}

static void *ends_it(void *unused) {
    OK(cuCtxSetCurrent(context));
    ends(mode == CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_SUCCESS
         : mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
             ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
             : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED); // by `unsafe`
    return unused;
}

static void in_thread(void *(*function)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, function, NULL);
    pthread_join(thread, NULL);
}

int main(void) {
    start();
    memory = allocate(16);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventRecord(event, other));
    OK(cuEventSynchronize(event));
    kernel("count_up");
    for (mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        for (own = CU_STREAM_CAPTURE_MODE_GLOBAL; own <= CU_STREAM_CAPTURE_MODE_RELAXED; own++) {
            printf("capture of mode %d, thread of mode %d\n", mode, own);
            begin();
            in_thread(unsafe);
            int both = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && own == CU_STREAM_CAPTURE_MODE_GLOBAL;
            ends(both ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
        }
        own = CU_STREAM_CAPTURE_MODE_GLOBAL;
        printf("mode %d: beside it\n", mode);
        begin();
        in_thread(launches);
        ends(CUDA_SUCCESS);
        begin();
        in_thread(asks);
        ends(mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
        printf("mode %d: whose thread is gone\n", mode);
        in_thread(begins);
        in_thread(unsafe); // most likely at the same address as the one that has begun
        in_thread(ends_it);
    }
    unsigned value = 0;
    OK(cuStreamSynchronize(other)); // what `launches` has written there in no order with what follows
    OK(cuMemsetD32Async(memory, 7, 4, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, memory, 4));
    EXPECT(value == 7);
    return check_failed;
}
