// Created contexts: the stack of each thread, a module per context, destruction of one while another works.
#include <pthread.h>

#include "driver.h"

enum { HIGH = 70000 };

static CUcontext created;

static void *other_thread(void *argument) {
    CUcontext current = (CUcontext)1;
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxDestroy(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxPushCurrent(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(argument, 4096));
    OK(cuCtxPushCurrent(created));
    OK(cuMemAlloc(argument, 4096));
    OK(cuCtxPopCurrent(&current));
    EXPECT(current == created);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&current));
    return NULL;
}

static unsigned count_in_current(CUfunction count_up, unsigned first) {
    CUdeviceptr counter = allocate(4);
    unsigned value = 0;
    QUIET(cuMemsetD32(counter, first, 1));
    QUIET(LAUNCH(count_up, 1, 1, NULL, &counter));
    QUIET(cuMemcpyDtoH(&value, counter, 4));
    return value;
}

int main(void) {
    CUcontext current, popped;
    CUdevice of_context;
    CUdeviceptr from_thread = 0;
    CUmodule twin;
    CUfunction twin_count_up;
    unsigned version = 0;
    start();
    CUfunction count_up = kernel("count_up");
    CUexecAffinityParam unused = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param.smCount.val = 2};
    CUctxCreateParams nothing = {.execAffinityParams = &unused, .numExecAffinityParams = 0};
    OK(cuCtxCreate(&created, &nothing, CU_CTX_SCHED_AUTO, device));
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == created && created != context);
    OK(cuModuleLoadData(&twin, kernels_ptx));
    OK(cuModuleGetFunction(&twin_count_up, twin, "count_up"));
    EXPECT(count_in_current(twin_count_up, 10) == 11);
    OK(cuCtxGetApiVersion(created, &version));
    EXPECT(version >= 3020);
    OK(cuCtxPopCurrent(&popped));
    EXPECT(popped == created);
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == context);
    EXPECT(count_in_current(count_up, 20) == 21);
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, &from_thread);
    pthread_join(thread, NULL);
    EXPECT(from_thread != 0);
    // a stack is as high as a program makes it
    for (int i = 0; i < HIGH; i++)
        QUIET(cuCtxPushCurrent(created));
    for (int i = 0; i < HIGH; i++)
        QUIET(cuCtxPopCurrent(&popped));
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == context);
    OK(cuCtxPushCurrent(created));
    OK(cuCtxGetDevice(&of_context));
    EXPECT(of_context == device);
    OK(cuCtxDestroy(created));
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == context);
    EXPECT(count_in_current(count_up, 30) == 31);
    OK(cuCtxSetCurrent(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&of_context));
    return check_failed;
}
