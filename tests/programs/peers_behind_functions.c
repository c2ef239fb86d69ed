// Another device is let to memory while a stream waits for a function of the program: by page-locked memory,
// which all devices reach, and by peer access that is enabled and disabled.
//
// suite: devices
#include <time.h>

#include "driver.h"

enum { TIMES = 3, BYTES = 1 << 22 };

static void takes_its_time(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

int main(void) {
    CUcontext second;
    void *host;
    unsigned char byte = 0;
    start();
    CUdeviceptr memory = allocate(BYTES);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuMemsetD8Async(memory, 1, BYTES, NULL));
    OK(cuLaunchHostFunc(NULL, takes_its_time, NULL));
    OK(cuMemHostAlloc(&host, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemsetD8Async((CUdeviceptr)host, 2, BYTES, NULL));
    OK(cuCtxSynchronize());
    EXPECT(((unsigned char *)host)[BYTES - 1] == 2);
    CUdeviceptr words;
    OK(cuMemHostAlloc((void **)&words, BYTES, 0)); // the device has it from its first kernel on
    memset((void *)words, 0, BYTES);
    OK(cuLaunchHostFunc(NULL, takes_its_time, NULL));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &words));
    OK(cuCtxSynchronize());
    EXPECT(*(unsigned *)words == 1);
    for (int i = 0; i < TIMES; i++) {
        OK(cuCtxSetCurrent(context));
        OK(cuMemsetD8Async(memory, (unsigned char)i, BYTES, NULL));
        OK(cuLaunchHostFunc(NULL, takes_its_time, NULL));
        OK(cuCtxSetCurrent(second));
        OK(cuCtxEnablePeerAccess(context, 0));
        OK(cuCtxDisablePeerAccess(context));
        OK(cuCtxSetCurrent(context));
        OK(cuMemcpyDtoH(&byte, memory, 1));
        EXPECT(byte == i);
    }
    return check_failed;
}
