// A context that is current and ends all the same, destroyed by another thread or from below on the stack:
// calls in it say so, and all else goes on: another one is made, and what is others' ends.
#include <pthread.h>

#include "driver.h"

enum { PAGE = 2 << 20 };

static pthread_barrier_t meeting;
static CUcontext doomed;

static void *destroys(void *which) {
    OK(cuCtxDestroy(which));
    return NULL;
}

static void in_another_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    pthread_create(&thread, NULL, function, argument);
    pthread_join(thread, NULL);
}

static void works(CUfunction count_up, unsigned first) {
    CUdeviceptr counter = allocate(4);
    unsigned value = 0;
    OK(cuMemsetD32(counter, first, 1));
    OK(LAUNCH(count_up, 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == first + 1);
    OK(cuMemFree(counter));
}

static void another_one(unsigned first) {
    CUcontext made = NULL;
    CUmodule loaded;
    CUfunction count_up;
    OK(cuCtxCreate(&made, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&count_up, loaded, "count_up"));
    works(count_up, first);
    OK(cuCtxDestroy(made));
}

// What needs no context.
static void goes_on(void) {
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemGenericAllocationHandle physical;
    CUdeviceptr address = 0;
    OK(cuMemCreate(&physical, PAGE, &prop, 0));
    OK(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    OK(cuMemMap(address, PAGE, 0, physical, 0));
    OK(cuMemUnmap(address, PAGE));
    OK(cuMemAddressFree(address, PAGE));
    OK(cuMemRelease(physical));
}

// Its stream of the primary context ends with it.
static void *has_a_stream(void *argument) {
    CUdeviceptr word = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&word, 4));
    OK(cuMemsetD32Async(word, 3, 1, CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemFree(word));
    OK(cuCtxSetCurrent(doomed));
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    return argument;
}

int main(void) {
    CUcontext first, second, current = NULL;
    CUdevice which;
    pthread_t thread;
    start();
    CUfunction count_up = kernel("count_up");
    works(count_up, 5);
    OK(cuCtxCreate(&first, NULL, CU_CTX_SCHED_AUTO, device));
    in_another_thread(destroys, first);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetDevice(&which));
    goes_on();
    another_one(10);
    OK(cuCtxSetCurrent(context));
    works(count_up, 20);
    // from below on the stack
    OK(cuCtxCreate(&first, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuCtxCreate(&second, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuCtxDestroy(first));
    OK(cuCtxDestroy(second));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    another_one(30);
    OK(cuCtxPopCurrent(&current));
    works(count_up, 40);
    // a thread that ends in it
    pthread_barrier_init(&meeting, NULL, 2);
    OK(cuCtxCreate(&doomed, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuCtxSetCurrent(context));
    pthread_create(&thread, NULL, has_a_stream, NULL);
    pthread_barrier_wait(&meeting);
    OK(cuCtxDestroy(doomed));
    pthread_barrier_wait(&meeting);
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    works(count_up, 50);
    return check_failed;
}
