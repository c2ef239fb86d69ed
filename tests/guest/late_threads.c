/* Threads that go on with calls when main has returned: each tells the error at which it stops. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *again(void *context) {
    cuCtxSetCurrent(context);
    CUresult result;
    do {
        result = cuCtxSynchronize();
    } while (result == CUDA_SUCCESS);
    dprintf(STDOUT_FILENO, "%d\n", result);
    return NULL;
}

int main(void) {
    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) {
        return 1;
    }
    pthread_t thread;
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread, NULL, again, context);
    }
    usleep(50000);
    return 0;
}
