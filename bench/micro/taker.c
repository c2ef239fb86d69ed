// Asks the device for nothing but an answer, again and again, for so many seconds. Prints when each came, by
// the monotonic clock.
//
//   taker SECONDS
//
// The device is idle all the time, so what lies between the last answer of one program and the first of the
// next is what handing a turn over costs, and one call.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLS_MOST 1000000

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(CUresult status) {
    if (status != CUDA_SUCCESS) {
        fprintf(stderr, "taker: CUDA error %d\n", status);
        exit(1);
    }
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: taker SECONDS\n");
        return 2;
    }
    CUdevice device;
    CUcontext context;
    check(cuInit(0));
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context, device));
    check(cuCtxSetCurrent(context));
    CUdeviceptr memory;
    check(cuMemAlloc(&memory, 1));
    static double answered[CALLS_MOST];
    size_t calls = 0;
    double began = now(), last = began;
    while (last - began < atof(arguments[1]) && calls < CALLS_MOST) {
        char byte;
        check(cuMemcpyDtoH(&byte, memory, 1));
        last = answered[calls++] = now();
    }
    for (size_t i = 0; i < calls; i++) {
        printf("%.9f\n", answered[i]);
    }
    return 0;
}
