// The primary context: retain counts, state and flags, and its memory gone after the last release.
#include "driver.h"

int main(void) {
    unsigned flags = 99, value = 0;
    int active = 99;
    CUdevice which = 99;
    CUcontext again;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active == 0);
    OK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
    start();
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active == 1 && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuDevicePrimaryCtxRetain(&again, device));
    EXPECT(again == context);
    // whoever retains it too leaves it as it is
    OK(cuCtxSetFlags(CU_CTX_SCHED_YIELD));
    OK(cuDevicePrimaryCtxRetain(&again, device));
    OK(cuDevicePrimaryCtxRelease(device));
    OK(cuCtxGetFlags(&flags));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
    CUdeviceptr counter = allocate((size_t)8 << 20);
    OK(cuMemsetD32(counter, 6, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuDevicePrimaryCtxRelease(device));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == 7);
    OK(cuDevicePrimaryCtxRelease(device));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active == 0);
    // which device it is of can be asked of an inactive one too: CUDA 11's runtime begins so
    OK(cuCtxGetDevice(&which));
    EXPECT(which == device);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(device));
    start();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, counter, 4));
    return check_failed;
}
