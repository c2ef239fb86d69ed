// Handles that were destroyed, or never existed, of each kind.
//
// device: sim   NVIDIA's driver does not promise to survive these
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 7, 1));
    CUfunction count_up = kernel("count_up");
    CUstream stream;
    CUevent event;
    CUmodule other;
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuModuleLoadData(&other, kernels_ptx));
    OK(LAUNCH(count_up, 1, 1, stream, &counter));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    OK(cuEventDestroy(event));
    OK(cuModuleUnload(other));

    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
    CUdevice untouched = 77;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamGetDevice(stream, &untouched));
    EXPECT(untouched == 77);
    FAILS(CUDA_ERROR_INVALID_HANDLE, LAUNCH(count_up, 1, 1, stream, &counter));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemsetD32Async(counter, 0, 1, stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&count_up, other, "count_up"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(other));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)(uintptr_t)0xdeadbeef));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery((CUevent)(uintptr_t)0xdeadbeef));

    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 8);
    return check_failed;
}
