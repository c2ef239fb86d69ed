// Eight host threads launch into one stream: nothing is lost, and each thread's own launches keep their
// order.
#include <pthread.h>

#include "driver.h"

enum { THREADS = 8, STEPS = 200, WORDS = 64 };

static CUstream stream;
static CUdeviceptr data, total;
static CUfunction affine, count_up;

static void *work(void *argument) {
    CUdeviceptr mine = data + (uintptr_t)argument * WORDS * 4;
    QUIET(cuCtxSetCurrent(context));
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned count = WORDS, factor = 2 * step + 3, term = step;
        QUIET(LAUNCH(affine, 1, WORDS, stream, &mine, &count, &factor, &term));
        QUIET(LAUNCH(count_up, 1, 1, stream, &total));
    }
    return NULL;
}

int main(void) {
    static unsigned words[THREADS * WORDS];
    pthread_t threads[THREADS];
    start();
    affine = kernel("affine");
    count_up = kernel("count_up");
    data = allocate(sizeof words);
    total = allocate(4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32Async(data, 1, THREADS * WORDS, stream));
    OK(cuMemsetD32Async(total, 0, 1, stream));
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    unsigned counted = 0, expected = 1, wrong = 0;
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(words, data, sizeof words));
    OK(cuMemcpyDtoH(&counted, total, sizeof counted));
    for (unsigned step = 0; step < STEPS; step++)
        expected = expected * (2 * step + 3) + step;
    for (int i = 0; i < THREADS * WORDS; i++)
        wrong += words[i] != expected;
    EXPECT(wrong == 0);
    EXPECT(counted == THREADS * STEPS);
    return check_failed;
}
