// NULL where a handle is needed, of each kind, and an answer for each; work before and after is right.
#include "driver.h"

static void count(CUdeviceptr counter, unsigned expected) {
    unsigned value = 0;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == expected);
}

int main(void) {
    start();
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 0, 1));
    count(counter, 1);

    CUfunction function;
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    float milliseconds;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, NULL, event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&function, NULL, "add"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(NULL));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 1000));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&(int){0}, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));

    count(counter, 2);
    OK(cuEventDestroy(event));
    return check_failed;
}
