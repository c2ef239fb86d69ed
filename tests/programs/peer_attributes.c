// What two devices are to each other: a device and itself are no pair, and a null result is refused before
// anything else is looked at.
#include "driver.h"

int main(void) {
    start();
    int value = 7, count = 0;
    OK(cuDeviceGetCount(&count));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute(&value, 99, device, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, device, count));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, -1, device));
    EXPECT(value == 7);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&value, device, count));
    OK(cuDeviceCanAccessPeer(&value, device, device));
    EXPECT(value == 0);
    // and the device is there
    CUdeviceptr counter = allocate(4);
    unsigned seen = 0;
    OK(cuMemsetD32(counter, 0, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&seen, counter, sizeof seen));
    EXPECT(seen == 1);
    return check_failed;
}
