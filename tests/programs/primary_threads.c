// Threads that each retain the primary context, work, and release it: whoever has retained it can work in it,
// however many others release theirs at that moment, and though its end takes its time.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "driver.h"

enum { THREADS = 4, ROUNDS = 12, SHORT = 10000000, LONG = 60000000 };

static pthread_barrier_t begin;
static atomic_int releases;

static void pause_for(long ns) {
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void use(unsigned value) {
    CUdeviceptr memory = 0;
    unsigned back[64] = {0};
    QUIET(cuMemAlloc(&memory, sizeof back));
    QUIET(cuMemsetD32(memory, value, 64));
    QUIET(cuMemcpyDtoH(back, memory, sizeof back));
    if (back[0] != value || back[63] != value)
        check_fact("a thread reads what it wrote", 0);
    QUIET(cuMemFree(memory));
}

static void work(unsigned value) {
    CUcontext mine = NULL;
    QUIET(cuDevicePrimaryCtxRetain(&mine, 0));
    QUIET(cuCtxSetCurrent(mine));
    use(value);
    QUIET(cuCtxSetCurrent(NULL));
    QUIET(cuDevicePrimaryCtxRelease(0));
}

static void *thread(void *number) {
    pthread_barrier_wait(&begin);
    for (unsigned i = 1; i <= ROUNDS; i++)
        work((unsigned)(uintptr_t)number * ROUNDS + i);
    return NULL;
}

static void CUDA_CB linger(void *unused) {
    (void)unused;
    pause_for(LONG);
}

// Its context ends when the function has returned.
static void *releases_slowly(void *unused) {
    CUcontext mine = NULL;
    QUIET(cuDevicePrimaryCtxRetain(&mine, 0));
    QUIET(cuCtxSetCurrent(mine));
    QUIET(cuLaunchHostFunc(NULL, linger, NULL));
    releases = 1;
    QUIET(cuDevicePrimaryCtxRelease(0));
    return unused;
}

// Most likely in the middle of that.
static void comes_meanwhile(void) {
    pthread_t other;
    pthread_create(&other, NULL, releases_slowly, NULL);
    while (!releases)
        pause_for(SHORT);
    pause_for(SHORT);
    CUcontext mine = NULL;
    OK(cuDevicePrimaryCtxRetain(&mine, 0));
    OK(cuCtxSetCurrent(mine));
    use(7);
    pthread_join(other, NULL);
    use(8);
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned flags = 0;
    int active = 9;
    OK(cuInit(0));
    comes_meanwhile();
    pthread_barrier_init(&begin, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    return check_failed || check_repeated;
}
