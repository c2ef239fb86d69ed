// Which devices the environment lets a program see, and in which order; the test runs it with many values.
//
// suite: visible
#include "driver.h"

int main(void) {
    int count = -1;
    CUresult begun = cuInit(0);
    CALL(begun);
    if (begun != CUDA_SUCCESS)
        return begun == CUDA_ERROR_NO_DEVICE ? 0 : 1;
    OK(cuDeviceGetCount(&count));
    printf("%d devices\n", count);
    for (int i = 0; i < count; i++) {
        CUuuid uuid;
        CUmodule loaded;
        CUfunction count_up;
        unsigned value = 0;
        OK(cuDeviceGetUuid(&uuid, i));
        digest("uuid", &uuid, sizeof uuid);
        OK(cuDevicePrimaryCtxRetain(&context, i));
        OK(cuCtxSetCurrent(context));
        OK(cuModuleLoadData(&loaded, kernels_ptx));
        OK(cuModuleGetFunction(&count_up, loaded, "count_up"));
        CUdeviceptr counter = allocate(4);
        OK(cuMemsetD32(counter, 40 + (unsigned)i, 1));
        OK(LAUNCH(count_up, 1, 1, NULL, &counter));
        OK(cuMemcpyDtoH(&value, counter, 4));
        EXPECT(value == 41 + (unsigned)i);
    }
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, count));
    return check_failed;
}
