// Events: order of their times, queries, and the errors of measuring what was not recorded or not timed.
#include "driver.h"

int main(void) {
    CUevent first, second, third, untimed, unused;
    CUstream stream;
    float early = -1, late = -1, whole = -1, back = 1;
    unsigned count = 256, delay = 50000, value = 0;
    start();
    CUfunction slow_copy = kernel("slow_copy");
    CUdeviceptr a = allocate(1024), b = allocate(1024);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&first, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&second, CU_EVENT_BLOCKING_SYNC));
    OK(cuEventCreate(&third, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&unused, CU_EVENT_DEFAULT));
    OK(cuMemsetD32(a, 321, 256));
    OK(cuEventQuery(unused));
    OK(cuEventRecord(first, stream));
    OK(LAUNCH(slow_copy, 1, 64, stream, &b, &a, &count, &delay));
    OK(cuEventRecord(second, stream));
    OK(LAUNCH(slow_copy, 1, 64, stream, &b, &a, &count, &delay));
    OK(cuEventRecord(third, stream));
    OK(cuEventRecord(untimed, stream));
    OK(cuEventSynchronize(untimed));
    OK(cuEventQuery(first));
    OK(cuEventElapsedTime(&early, first, second));
    OK(cuEventElapsedTime(&late, second, third));
    OK(cuEventElapsedTime(&whole, first, third));
    OK(cuEventElapsedTime(&back, third, first));
    EXPECT(early > 0 && late > 0);
    EXPECT(whole >= early && whole >= late);
    EXPECT(whole - (early + late) < 0.01f && whole - (early + late) > -0.01f);
    EXPECT(back <= 0);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&early, first, unused));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&early, first, untimed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&unused, 0x100));
    OK(cuMemcpyDtoH(&value, b + 1020, 4));
    EXPECT(value == 321);
    return check_failed;
}
