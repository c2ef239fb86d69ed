// Functions that gpuferry does not carry yet exist and say so; what they refuse has no effect on the rest.
//
// device: sim   a GPU's own driver has them
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr counter = allocate(4);
    CUexternalSemaphore semaphore;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR description = {
        .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    OK(cuMemsetD32(counter, 1, 1));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalSemaphore(&semaphore, NULL));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate(&array, &description));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuDestroyExternalSemaphore(NULL));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 2);
    return check_failed;
}
