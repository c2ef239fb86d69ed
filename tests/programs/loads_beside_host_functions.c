// Images are loaded while functions of the program run in streams of two threads: one may wait for the other,
// and none for ever.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "driver.h"

enum { ROUNDS = 8, AHEAD = 64 };

static atomic_int begun, slow, quick;
static atomic_bool over;

static void work_slowly(void *data) {
    (void)data;
    atomic_fetch_add(&begun, 1);
    usleep(30000);
    atomic_fetch_add(&slow, 1);
}

static void work_quickly(void *data) {
    atomic_fetch_add((atomic_int *)data, 1);
}

static void *beside(void *data) {
    CUstream stream = data;
    int rounds = 0;
    QUIET(cuCtxSetCurrent(context));
    while (!atomic_load(&over)) {
        QUIET(cuLaunchHostFunc(stream, work_quickly, &quick));
        CUresult far = cuStreamQuery(stream);
        if (far != CUDA_SUCCESS && far != CUDA_ERROR_NOT_READY)
            QUIET(far);
        if (++rounds % AHEAD == 0) /* or the loads come behind as many as a server takes */
            QUIET(cuStreamSynchronize(stream));
    }
    QUIET(cuStreamSynchronize(stream));
    EXPECT(atomic_load(&quick) == rounds);
    return NULL;
}

int main(void) {
    unsigned word = 0;
    CUdeviceptr memory;
    CUstream stream, other;
    CUmodule loaded;
    CUfunction function;
    pthread_t thread;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    pthread_create(&thread, NULL, beside, other);
    for (int round = 1; round <= ROUNDS; round++) {
        QUIET(cuLaunchHostFunc(stream, work_slowly, NULL));
        while (atomic_load(&begun) < round)
            usleep(100);
        QUIET(cuModuleLoadData(&loaded, kernels_ptx));
        QUIET(cuModuleGetFunction(&function, loaded, "affine"));
        QUIET(cuModuleUnload(loaded));
    }
    OK(cuStreamSynchronize(stream));
    EXPECT(atomic_load(&slow) == ROUNDS);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    OK(cuMemAlloc(&memory, sizeof word));
    OK(cuMemsetD32(memory, ROUNDS, 1));
    OK(cuMemcpyDtoH(&word, memory, sizeof word));
    EXPECT(word == ROUNDS);
    return check_failed;
}
