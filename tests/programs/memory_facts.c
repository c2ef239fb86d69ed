// How CUDA's driver answers in the corners of its memory calls, as others have measured it on GPUs.
#include <limits.h>

#include "driver.h"

int main(void) {
    start();
    CUdeviceptr memory = 0, base = 0;
    size_t size = 0, pitch = 0;
    void *pinned = NULL, *none = NULL;
    unsigned flags = 0;
    static char pageable[8192];
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&memory, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 16));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&memory, SIZE_MAX));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&memory, &pitch, 0, 1, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&memory, &pitch, 1, 0, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&memory, &pitch, 16, 1, 7));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&memory, &pitch, 16, 1, 17));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemAllocPitch(&memory, &pitch, INT_MAX, 1, 4)); // rounded, it is too large
    OK(cuMemAlloc(&memory, 1000));
    EXPECT(memory % 256 == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree((CUdeviceptr)(uintptr_t)pageable));
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)pageable));
    OK(cuMemGetAddressRange(NULL, &size, memory + 999));
    EXPECT(size == 1000);

    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemHostGetFlags(&flags, pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(NULL, pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, (void *)(uintptr_t)memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(NULL, 16, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&none, 16, 0xff));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(NULL));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pageable));
    OK(cuMemHostRegister(pageable + 3, 100, 0)); // neither address nor size need be a page's
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(pageable + 3, 100, 0));
    OK(cuMemHostRegister(pageable + 200, 100, 0)); // on the same page, and apart
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pageable + 103));
    OK(cuMemHostUnregister(pageable + 3));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pageable + 3));
    OK(cuMemHostUnregister(pageable + 200));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(NULL, 16, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(pageable, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pageable));

    int ordinal = 7;
    unsigned type = 7;
    void *host = &host;
    CUdeviceptr device_pointer = 7;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&ordinal, (CUpointer_attribute)999, memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *answers[] = {&type, &ordinal, &device_pointer, &host};
    OK(cuPointerGetAttributes(4, wanted, answers, (CUdeviceptr)(uintptr_t)pageable));
    EXPECT(type == 0 && ordinal == -2 && device_pointer == 0);
    OK(cuPointerGetAttributes(4, wanted, answers, 0));
    EXPECT(type == 0 && ordinal == -2 && device_pointer == 0 && host == NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, wanted, answers, memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(1, NULL, answers, memory));

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(memory, pageable, 1001));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(memory, NULL, 8, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 1, 1001));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(0, 1, 16));
    OK(cuMemcpyHtoD(memory, pageable, 0));

    unsigned value = 0;
    OK(cuMemsetD32(memory, 41, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &memory));
    OK(cuMemcpyDtoH(&value, memory, 4));
    EXPECT(value == 42);
    OK(cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    OK(cuMemFreeHost(pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
    return check_failed;
}
