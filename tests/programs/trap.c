// A kernel that executes a trap: the launch failed, and the context stays faulty.
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr data = allocate(64);
    unsigned back = 0;
    void *mapped;
    OK(cuMemHostAlloc(&mapped, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemsetD32(data, 0xffffffffu, 16));
    OK(LAUNCH(kernel("trap"), 1, 32, NULL, &data));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &data));
    OK(cuMemcpyDtoH(&back, data, sizeof back));
    EXPECT(back == 0);
    OK(LAUNCH(kernel("trap"), 1, 32, NULL, &data));
    FAILS(CUDA_ERROR_LAUNCH_FAILED, cuMemFreeHost(mapped)); // it waits for the kernel
    FAILS(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    FAILS(CUDA_ERROR_LAUNCH_FAILED, cuMemcpyDtoH(&back, data, sizeof back));
    return check_failed;
}
