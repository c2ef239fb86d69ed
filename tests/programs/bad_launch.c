// Launches that CUDA refuses at once: bad dimensions, too much shared memory, no function, contradictory
// arguments. A refused launch leaves the context usable.
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr data = allocate(4096);
    CUfunction count_up = kernel("count_up"), reverse = kernel("reverse");
    void *arguments[] = {&data};
    size_t size = sizeof data;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &data, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    OK(cuMemsetD32(data, 0, 1024));

    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 0, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 0, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 1, 1, 0, 1, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 1, 1, 64, 64, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 65, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 65536, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(reverse, 1, 1, 1, 32, 1, 1, 1 << 20, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, extra));

    OK(cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    OK(cuCtxSynchronize());
    unsigned counter = 0;
    OK(cuMemcpyDtoH(&counter, data, sizeof counter));
    EXPECT(counter == 1);
    OK(cuMemFree(data));
    return check_failed;
}
