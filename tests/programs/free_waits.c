// To free memory, or to register it no more, waits for what the device was given before: functions of the
// program have run, whoever asks is told that streams and events are done, and memory that a kernel wrote is
// read without any other call. What a stream was given afterwards may still be under way. A blocking copy
// from the program's memory waits like that for its stream.
//
// device: sim: that a kernel takes its time, and where a stream waits for the program, a GPU decides
#include <time.h>

#include "driver.h"

static CUfunction slow;
static CUdeviceptr source, target;
static CUstream stream;
static volatile int called;
static char registered[4096];

static void CUDA_CB call(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    called = 1;
}

static void work(CUstream where, CUdeviceptr to) {
    unsigned count = 32, delay = 300000;
    QUIET(LAUNCH(slow, 1, 32, where, &to, &source, &count, &delay));
}

// Each kind of memory, behind a function of the program.
static void functions(void) {
    const CUDA_ARRAY_DESCRIPTOR flat = {.Width = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    const CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUdeviceptr memory = allocate(4096);
    CUarray array;
    CUmipmappedArray mipmap;
    void *host = NULL;
    OK(cuMemHostAlloc(&host, 4096, 0));
    OK(cuMemHostRegister(registered, sizeof registered, 0));
    OK(cuArrayCreate(&array, &flat));
    OK(cuMipmappedArrayCreate(&mipmap, &deep, 2));
    for (int kind = 0; kind < 5; kind++) {
        called = 0;
        QUIET(cuLaunchHostFunc(stream, call, NULL));
        if (kind == 0)
            OK(cuMemFree(memory));
        else if (kind == 1)
            OK(cuMemFreeHost(host));
        else if (kind == 2)
            OK(cuArrayDestroy(array));
        else if (kind == 3)
            OK(cuMipmappedArrayDestroy(mipmap));
        else
            OK(cuMemHostUnregister(registered));
        EXPECT(called == 1);
    }
}

static void questions(void) {
    CUevent begin, end;
    CUdeviceptr memory = allocate(4096), another = allocate(4096);
    float milliseconds = -1;
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventRecord(begin, stream));
    work(stream, target);
    OK(cuEventRecord(end, stream));
    OK(cuMemFree(memory));
    OK(cuStreamQuery(stream));
    work(stream, target);
    OK(cuEventRecord(end, stream));
    OK(cuMemFree(another));
    OK(cuEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds > 0);
    another = allocate(4096);
    work(stream, target);
    OK(cuEventRecord(end, stream));
    OK(cuMemFree(another));
    OK(cuEventQuery(end));
    another = allocate(4096);
    work(stream, target);
    OK(cuEventRecord(end, stream));
    OK(cuMemFree(another));
    OK(cuCtxWaitEvent(context, end)); // which is no record
    OK(cuEventQuery(end));
    another = allocate(4096);
    work(NULL, target);
    OK(cuMemFree(another));
    OK(cuStreamQuery(NULL));
    OK(cuMemHostRegister(registered, sizeof registered, 0));
    work(stream, target);
    OK(cuMemHostUnregister(registered));
    OK(cuStreamQuery(stream));
}

// What comes behind a free is not waited for: it would be for ever.
static void afterwards(void) {
    CUdeviceptr memory = allocate(4096), word = allocate(4);
    CUstream held;
    CUevent event;
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuMemsetD32(word, 0, 1));
    work(stream, target);
    OK(cuEventRecord(event, held));
    OK(cuMemFree(memory));
    OK(cuStreamWaitValue32(held, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventQuery(event));
    OK(cuEventRecord(event, held));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuStreamQuery(stream));
    OK(cuStreamWriteValue32(stream, word, 1, 0));
    OK(cuStreamSynchronize(held));
    OK(cuMemFree(word));
}

// The legacy stream, in which it is made, waits for all but non-blocking streams.
static void copies(void) {
    CUdeviceptr memory = allocate(4096), word = allocate(4), seen;
    CUarray array;
    CUstream blocking;
    CUevent begin, end;
    float milliseconds = -1;
    unsigned *host;
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){64, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventRecord(begin, NULL));
    work(NULL, target);
    OK(cuEventRecord(end, NULL));
    OK(cuMemcpyHtoD(memory, registered, sizeof registered));
    OK(cuEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds > 0);
    work(blocking, target);
    OK(cuEventRecord(end, blocking));
    OK(cuMemcpyHtoA(array, 0, registered, 256));
    OK(cuEventQuery(end));
    OK(cuStreamQuery(blocking));
    work(NULL, target);
    OK(cuMemcpyHtoD(memory, registered, sizeof registered));
    OK(cuStreamQuery(NULL));
    OK(cuMemsetD32(word, 0, 1));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(end, stream));
    OK(cuMemcpyHtoD(memory, registered, sizeof registered));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    OK(cuStreamWriteValue32(blocking, word, 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, host, 0));
    work(NULL, seen);
    unsigned before = *(volatile unsigned *)&host[31];
    OK(cuMemcpyHtoD(memory, registered, sizeof registered));
    (void)before;
    EXPECT(host[31] == 1);
    OK(cuMemFreeHost(host));
}

// The program sees what kernels wrote.
static void shared(void) {
    enum { PINNED, MANAGED, REGISTERED, KINDS };
    _Alignas(4096) static unsigned own[1024];
    unsigned seed[32];
    for (unsigned i = 0; i < 32; i++)
        seed[i] = i + 100;
    OK(cuMemcpyHtoD(source, seed, sizeof seed));
    OK(cuMemHostRegister(own, sizeof own, CU_MEMHOSTREGISTER_DEVICEMAP));
    for (int kind = 0; kind < KINDS; kind++) {
        CUdeviceptr memory = allocate(4096), seen = 0;
        const volatile unsigned *host = own;
        if (kind == PINNED)
            OK(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        else if (kind == MANAGED)
            OK(cuMemAllocManaged((CUdeviceptr *)&host, 4096, CU_MEM_ATTACH_GLOBAL));
        if (kind == MANAGED)
            seen = (CUdeviceptr)host;
        else
            OK(cuMemHostGetDevicePointer(&seen, (void *)host, 0));
        work(stream, seen);
        unsigned before = host[31];
        OK(cuMemFree(memory));
        (void)before;
        printf("kind %d: %u\n", kind, host[31]);
        EXPECT(host[31] == 131);
        if (kind == PINNED)
            OK(cuMemFreeHost((void *)host));
        else if (kind == MANAGED)
            OK(cuMemFree((CUdeviceptr)host));
    }
    OK(cuMemHostUnregister(own));
}

int main(void) {
    start();
    slow = kernel("slow_copy");
    source = allocate(128);
    target = allocate(128);
    OK(cuMemsetD32(source, 1, 32));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    functions();
    questions();
    copies();
    afterwards();
    shared();
    return check_failed;
}
