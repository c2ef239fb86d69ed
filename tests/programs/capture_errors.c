// What is illegal while a stream is captured says so with CUDA's error, ends the capture as CUDA says it
// does, and leaves streams that work.
#include "driver.h"

#include <pthread.h>

static CUstream origin, other, blocking;
static CUevent before, during;
static CUgraph graph;
static CUdeviceptr word;

static void begin(CUstreamCaptureMode mode) {
    OK(cuStreamBeginCapture(origin, mode));
    OK(cuMemsetD32Async(word, 1, 1, origin));
}

static void ends_invalidated(void) {
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(origin, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(word, 1, 1, origin));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &graph));
    EXPECT(graph == NULL);
    OK(cuMemsetD32Async(word, 1, 1, origin));
    OK(cuStreamSynchronize(origin));
}

static void ends_well(void) {
    OK(cuStreamEndCapture(origin, &graph));
    OK(cuGraphDestroy(graph));
}

static void *wait_elsewhere(void *unused) {
    (void)unused;
    CALL(cuCtxSetCurrent(context));
    CALL(cuStreamSynchronize(other));
    return NULL;
}

static void *end_elsewhere(void *unused) {
    (void)unused;
    CALL(cuCtxSetCurrent(context));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(origin, &graph));
    return NULL;
}

static void in_thread(void *(*function)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, function, NULL);
    pthread_join(thread, NULL);
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *data) {
    (void)stream, (void)status, (void)data;
}

static void *ends_within(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(word, 1, 1, CU_STREAM_PER_THREAD));
    return unused;
}

int main(void) {
    start();
    word = allocate(16);
    OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&before, 0));
    OK(cuEventCreate(&during, 0));
    OK(cuEventRecord(before, origin));
    OK(cuEventRecord(during, origin));
    OK(cuStreamSynchronize(origin));
    const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED};
    const CUDA_MEMCPY2D narrow = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, // rows that would overlap
                                  .srcDevice = word,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = word + 8,
                                  .srcPitch = 2,
                                  .dstPitch = 4,
                                  .WidthInBytes = 4,
                                  .Height = 2};
    CUstreamCaptureStatus status;
    CUdeviceptr memory;
    CUgraphExec exec;
    CUstream gone;
    float elapsed;
    OK(cuStreamCreate(&gone, CU_STREAM_DEFAULT));
    OK(cuStreamDestroy(gone));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));

    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, modes[0]));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture(origin, (CUstreamCaptureMode)-1));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(origin, &graph));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(NULL, &graph));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(origin, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamIsCapturing(origin, NULL));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(origin, NULL, NULL, 0, 0));

    for (int i = 0; i < 3; i++) {
        printf("mode %d\n", i);
        begin(modes[i]);
        FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(origin, modes[i]));
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(origin));
        ends_invalidated();
        begin(modes[i]);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(origin));
        ends_invalidated();
        begin(modes[i]);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
        ends_invalidated();
        begin(modes[i]);
        OK(cuEventRecord(during, origin));
        FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(during));
        ends_invalidated();
        FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(during));
        FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventElapsedTime(&elapsed, before, during));
        FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventElapsedTime(&elapsed, during, before));
        begin(modes[i]);
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(gone)); // which is no word about the capture
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(gone));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync(&narrow, origin));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(word, origin)); // which no stream has allocated
        OK(cuStreamEndCapture(origin, &graph));
        OK(cuGraphDestroy(graph));
        begin(modes[i]);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(origin, before, 0));
        ends_invalidated();
        begin(modes[i]);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(origin, callback, NULL, 0));
        ends_invalidated();

        /* potentially unsafe, though not about the stream */
        begin(modes[i]);
        if (i < 2) {
            FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&memory, 256));
            ends_invalidated();
            static char page[4096];
            OK(cuMemHostRegister(page, sizeof page, 0));
            begin(modes[i]);
            FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemHostUnregister(page)); // it would wait
            ends_invalidated();
            OK(cuMemHostUnregister(page));
            begin(modes[i]);
            FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventSynchronize(before));
            ends_invalidated();
            begin(modes[i]);
            FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  cuGraphExecDestroy(exec)); /* as PyTorch has met it */
            ends_invalidated();
            CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
            begin(modes[i]);
            OK(cuThreadExchangeStreamCaptureMode(&relaxed));
            OK(cuMemAlloc(&memory, 256));
            OK(cuThreadExchangeStreamCaptureMode(&relaxed));
            FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree(memory));
            ends_invalidated();
        } else {
            OK(cuMemAlloc(&memory, 256));
            OK(cuEventSynchronize(before));
            ends_well();
        }
        OK(cuMemFree(memory));

        begin(modes[i]);
        in_thread(wait_elsewhere);
        OK(cuStreamIsCapturing(origin, &status));
        EXPECT(status == (i == 0 ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE));
        if (i == 0)
            ends_invalidated();
        else
            ends_well();
        if (i < 2) {
            begin(modes[i]);
            in_thread(end_elsewhere); /* the wrong thread ends it all the same */
            EXPECT(cuStreamEndCapture(origin, &graph) == CUDA_ERROR_ILLEGAL_STATE && graph == NULL);
        }
        begin(modes[i]);
        OK(cuStreamEndCapture(origin, NULL)); /* nobody wants the graph */
        OK(cuStreamSynchronize(origin));
    }

    OK(cuGraphExecDestroy(exec));

    printf("forks\n");
    begin(modes[1]);
    OK(cuEventRecord(during, origin));
    OK(cuStreamWaitEvent(other, during, 0));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(other, modes[1]));
    OK(cuMemsetD32Async(word + 4, 2, 1, other));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(origin, &graph));
    EXPECT(graph == NULL);
    OK(cuStreamSynchronize(other));
    begin(modes[1]);
    OK(cuEventRecord(during, origin));
    OK(cuStreamWaitEvent(other, during, 0));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
    ends_invalidated();
    OK(cuStreamSynchronize(other));
    begin(modes[1]);
    OK(cuStreamBeginCapture(other, modes[1]));
    OK(cuEventRecord(during, other));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(origin, during, 0));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(other, &graph));
    ends_invalidated();

    printf("the legacy stream\n");
    begin(modes[0]);
    OK(cuStreamIsCapturing(NULL, &status)); /* the captured stream is none that it waits for */
    ends_well();
    OK(cuStreamBeginCapture(blocking, modes[1]));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuMemsetD32Async(word, 1, 1, blocking));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async(word, 1, 1, NULL));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    OK(cuStreamBeginCapture(blocking, modes[2]));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32(word, 1, 1));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    OK(cuMemsetD32(word, 1, 1));
    in_thread(ends_within); // its stream goes with it, and the capture with the stream
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, word, 4));
    EXPECT(value == 1);
    return check_failed;
}
