// Functions that gpuferry does not carry yet exist and say so; what they refuse has no effect on the rest.
//
// device: sim   a GPU's own driver has them
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr counter = allocate(4);
    CUexternalMemory memory;
    CUexternalSemaphore semaphore;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory_description = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                                           .size = 4096};
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC semaphore_description = {
        .type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD};
    OK(cuMemsetD32(counter, 1, 1));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&memory, &memory_description));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalSemaphore(&semaphore, &semaphore_description));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 2);
    return check_failed;
}
