/* Eight threads do everything at once in one context: allocate, copy, fill, record and wait for events, call
 * host functions, make and destroy streams, free in stream order. Each checks its own results. Meant for
 * ThreadSanitizer above all. Build and run: see tests/simdevice/test_stress.py. */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define WORDS   1000

#define OK(call)                                                                                             \
    do {                                                                                                     \
        CUresult result_ = (call);                                                                           \
        if (result_ != CUDA_SUCCESS) {                                                                       \
            printf("%s -> %d\n", #call, (int)result_);                                                       \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static CUcontext context;
static CUevent shared_event;
static _Atomic uint64_t called;
static int steps;

static void count(void *unused) {
    (void)unused;
    atomic_fetch_add(&called, 1);
}

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void check(const uint32_t *words, uint32_t expected) {
    for (int i = 0; i < WORDS; i++) {
        if (words[i] != expected) {
            printf("word %d is %u, not %u\n", i, words[i], expected);
            exit(1);
        }
    }
}

static void one_step(uint32_t *seed, uint32_t value) {
    CUstream streams[2];
    CUevent event;
    CUdeviceptr plain, pooled;
    uint32_t *pinned, pageable[WORDS];
    OK(cuStreamCreate(&streams[0], next(seed) % 2));
    OK(cuStreamCreateWithPriority(&streams[1], CU_STREAM_NON_BLOCKING, -(int)(next(seed) % 6)));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&plain, sizeof pageable));
    OK(cuMemAllocAsync(&pooled, sizeof pageable, streams[0]));
    OK(cuMemHostAlloc((void **)&pinned, sizeof pageable, 0));

    OK(cuMemsetD32Async(pooled, value, WORDS, streams[0]));
    OK(cuLaunchHostFunc(streams[0], count, NULL));
    OK(cuEventRecord(event, streams[0]));
    OK(cuStreamWaitEvent(streams[1], event, 0));
    OK(cuMemcpyDtoDAsync(plain, pooled, sizeof pageable, streams[1]));
    OK(cuMemcpyDtoHAsync(pinned, plain, sizeof pageable, streams[1]));
    OK(cuEventRecord(event, streams[1]));
    OK(cuStreamWaitEvent(streams[0], event, 0));
    OK(cuMemFreeAsync(pooled, streams[0]));
    if (next(seed) % 4 == 0) { /* an event that everybody records and waits for */
        OK(cuEventRecord(shared_event, streams[0]));
        OK(cuStreamWaitEvent(streams[1], shared_event, 0));
    }
    if (next(seed) % 4 == 0)
        OK(cuMemsetD8Async(plain, 0, 0, 0)); /* the legacy stream takes part */
    if (next(seed) % 2) {
        OK(cuStreamDestroy(streams[0])); /* while it has work */
        streams[0] = NULL;
    }
    OK(cuStreamSynchronize(streams[1]));
    check(pinned, value);
    OK(cuMemcpyDtoH(pageable, plain, sizeof pageable));
    check(pageable, value);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(streams[1]));
    if (streams[0])
        OK(cuStreamDestroy(streams[0]));
    OK(cuMemFree(plain));
    OK(cuMemFreeHost(pinned));
}

static void *work(void *number) {
    uint32_t seed = (uint32_t)(uintptr_t)number;
    OK(cuCtxSetCurrent(context));
    for (int step = 0; step < steps; step++)
        one_step(&seed, (uint32_t)step * THREADS + (uint32_t)(uintptr_t)number);
    return NULL;
}

int main(int argc, char **argv) {
    CUdevice device;
    pthread_t threads[THREADS];
    size_t before, after, total;
    steps = argc > 1 ? atoi(argv[1]) : 200;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuEventCreate(&shared_event, 0));
    OK(cuMemGetInfo(&before, &total));
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo(&after, &total));
    printf("called %llu, leaked %lld\n", (unsigned long long)called, (long long)before - (long long)after);
    OK(cuDevicePrimaryCtxRelease(device));
    return 0;
}
