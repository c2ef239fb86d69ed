// Each launch of several threads counts once, whatever they wait for in between.
#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"

enum { THREADS = 4, ROUNDS = 60, LAUNCHES = 5 };

static CUfunction count;
static CUdeviceptr total;
static atomic_uint wrong;

static void *work(void *number) {
    CUstream stream;
    unsigned *seen, own = 0;
    CUdeviceptr counter;
    QUIET(cuCtxSetCurrent(context));
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    QUIET(cuMemHostAlloc((void **)&seen, 4, 0));
    QUIET(cuMemAlloc(&counter, 4));
    QUIET(cuMemsetD32Async(counter, 0, 1, stream));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < LAUNCHES; i++) {
            QUIET(LAUNCH(count, 1, 1, stream, &counter));
            QUIET(LAUNCH(count, 1, 1, stream, &total));
        }
        if (round % 3 == 0) {
            QUIET(cuMemcpyDtoHAsync(seen, counter, 4, stream));
            QUIET(cuStreamSynchronize(stream));
            wrong += *seen != round * LAUNCHES;
        } else if (round % 3 == 1) {
            QUIET(cuStreamSynchronize(stream));
            QUIET(cuMemcpyDtoH(&own, counter, 4));
            wrong += own != round * LAUNCHES;
        }
    }
    QUIET(cuStreamDestroy(stream));
    QUIET(cuMemFree(counter));
    QUIET(cuMemFreeHost(seen));
    return number;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned counted = 0;
    start();
    count = kernel("count_atomically");
    OK(cuMemAlloc(&total, 4));
    OK(cuMemsetD32(total, 0, 1));
    OK(cuCtxSynchronize());
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(cuMemcpyDtoH(&counted, total, 4));
    printf("%u\n", counted);
    EXPECT(wrong == 0);
    EXPECT(counted == THREADS * ROUNDS * LAUNCHES);
    return check_failed;
}
