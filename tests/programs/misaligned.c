// A kernel that stores a word at an odd address faults, and the context stays faulty.
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr data = allocate(64), odd = data + 1;
    unsigned value = 0x01020304, back = 0;
    OK(cuMemsetD8(data, 0, 64));
    OK(LAUNCH(kernel("store"), 1, 1, NULL, &data, &value));
    OK(cuMemcpyDtoH(&back, data, sizeof back));
    EXPECT(back == value);
    OK(LAUNCH(kernel("store"), 1, 1, NULL, &odd, &value));
    FAILS(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
    FAILS(CUDA_ERROR_MISALIGNED_ADDRESS, cuMemcpyDtoH(&back, data, sizeof back));
    return check_failed;
}
