// A kernel writes where nothing is: the next wait says so, and so does every call that touches the context
// from then on.
#include "driver.h"

int main(void) {
    start();
    CUfunction store = kernel("store");
    CUdeviceptr good = allocate(4), bad = 0x10;
    CUstream stream;
    CUevent event;
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    unsigned value = 77, back = 0;
    OK(LAUNCH(store, 1, 1, stream, &good, &value));
    OK(cuMemcpyDtoHAsync(&back, good, sizeof back, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(back == 77);

    OK(LAUNCH(store, 1, 1, stream, &bad, &value));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoH(&back, good, sizeof back));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyHtoD(good, &value, sizeof value));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD32(good, 0, 1));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, LAUNCH(store, 1, 1, stream, &good, &value));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&bad, 4));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(good));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventRecord(event, stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventCreate(&event, CU_EVENT_DEFAULT));
    int warp = 0;
    OK(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    EXPECT(warp == 32);
    return check_failed;
}
