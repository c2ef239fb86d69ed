// Eight host threads copy several MiB each, both ways and at once, each on a stream of its own.
#include <pthread.h>

#include "driver.h"

enum { THREADS = 8, ROUNDS = 6, WORDS = (9 << 20) / 4 };

static CUfunction affine;
static unsigned wrong[THREADS];

static void *work(void *argument) {
    const unsigned self = (unsigned)(uintptr_t)argument;
    unsigned *host = malloc(WORDS * 4), count = WORDS, factor = 3, term = self;
    CUstream stream;
    QUIET(cuCtxSetCurrent(context));
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = allocate(WORDS * 4);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < WORDS; i++)
            host[i] = i * 7 + round + self;
        QUIET(cuMemcpyHtoDAsync(memory, host, WORDS * 4, stream));
        memset(host, 0xff, WORDS * 4);
        QUIET(LAUNCH(affine, WORDS / 256, 256, stream, &memory, &count, &factor, &term));
        QUIET(cuMemcpyDtoHAsync(host, memory, WORDS * 4, stream));
        QUIET(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < WORDS; i++)
            wrong[self] += host[i] != (i * 7 + round + self) * 3 + self;
    }
    QUIET(cuMemFree(memory));
    QUIET(cuStreamDestroy(stream));
    free(host);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned total = 0;
    start();
    affine = kernel("affine");
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        total += wrong[i];
    }
    EXPECT(total == 0);
    return check_failed;
}
