// The interfaces of CUDA 2 and 3 with sizes and addresses of 32 bits: what fits is done, and device memory
// that such a program could not name is out of memory, not a wrong address.
//
// device: sim (NVIDIA's driver of today says CUDA_ERROR_INVALID_CONTEXT to all that wants a context)
// compile: -Wno-deprecated-declarations
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "check.h"
#include "kernels_ptx.h"

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction count_up;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    unsigned total = 0, left = 0, all = 0, pitch = 0, size = 0;
    size_t wide = 0;
    CUdeviceptr_v1 narrow = 0;
    CUdeviceptr memory = 0;
    void *pinned = NULL;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&narrow, 256));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuDeviceTotalMem_v2(&wide, device));
    OK(cuDeviceTotalMem(&total, device));
    EXPECT(total == (wide < UINT32_MAX ? wide : UINT32_MAX));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceTotalMem(NULL, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem(&total, 99));
    OK(cuMemGetInfo(&left, &all));
    EXPECT(left <= all && all == total);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 256));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&narrow, 0));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&narrow, 256));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&narrow, &pitch, 100, 10, 4));
    EXPECT(narrow == 0 && pitch == 0);
    OK(cuMemFree(0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(4096));
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&narrow, &size, 4096));
    OK(cuMemAllocHost(&pinned, 4096));
    memset(pinned, 3, 4096);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(4096, pinned, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(pinned, 4096, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(4096, 8192, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(4096, pinned, 16, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(pinned, 4096, 16, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(4096, 8192, 16, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(4096, 1, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(4096, 1, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(4096, 1, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(4096, 32, 1, 16, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D16(4096, 32, 1, 16, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(4096, 64, 1, 16, 2));

    // arrays need no device address either
    CUarray line, other, deep;
    CUDA_ARRAY_DESCRIPTOR_v1 flat = {16, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}, flat_back;
    CUDA_ARRAY3D_DESCRIPTOR_v1 solid = {4, 3, 2, CU_AD_FORMAT_FLOAT, 1, 0}, solid_back;
    OK(cuArrayCreate(&line, &flat));
    OK(cuArrayCreate(&other, &flat));
    OK(cuArrayGetDescriptor(&flat_back, line));
    EXPECT(memcmp(&flat, &flat_back, sizeof flat) == 0);
    OK(cuArray3DCreate(&deep, &solid));
    OK(cuArray3DGetDescriptor(&solid_back, deep));
    EXPECT(memcmp(&solid, &solid_back, sizeof solid) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(&line, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(NULL, &solid));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayGetDescriptor(NULL, line));
    OK(cuMemcpyHtoA(line, 0, pinned, 64));
    OK(cuMemcpyAtoA(other, 32, line, 0, 32));
    memset(pinned, 0, 64);
    OK(cuMemcpyAtoH(pinned, other, 32, 32));
    EXPECT(memcmp(pinned, (char *)pinned + 2048, 32) == 0);
    OK(cuMemcpyHtoAAsync(other, 0, (char *)pinned + 2048, 16, NULL));
    OK(cuMemcpyAtoHAsync((char *)pinned + 32, other, 0, 16, NULL));
    OK(cuCtxSynchronize());
    EXPECT(memcmp((char *)pinned + 32, (char *)pinned + 2048, 16) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoD(4096, line, 0, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoA(line, 0, 4096, 16));
    OK(cuArrayDestroy(line));
    OK(cuArrayDestroy(other));
    OK(cuArrayDestroy(deep));
    memset(pinned, 3, 4096);

    // a copy between two places of host memory needs no device address
    char *bytes = pinned;
    CUDA_MEMCPY2D_v1 plane = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = bytes,
                              .srcPitch = 64,
                              .dstMemoryType = CU_MEMORYTYPE_HOST,
                              .dstHost = bytes + 2048,
                              .dstPitch = 128,
                              .WidthInBytes = 16,
                              .Height = 4};
    memset(bytes + 2048, 0, 2048);
    OK(cuMemcpy2D(&plane));
    EXPECT(bytes[2048] == 3 && bytes[2048 + 15] == 3 && bytes[2048 + 16] == 0 && bytes[2048 + 384] == 3);
    memset(bytes + 2048, 0, 2048);
    OK(cuMemcpy2DUnaligned(&plane));
    EXPECT(bytes[2048 + 128] == 3 && bytes[2048 + 512] == 0);
    memset(bytes + 2048, 0, 2048);
    OK(cuMemcpy2DAsync(&plane, NULL));
    OK(cuCtxSynchronize());
    EXPECT(bytes[2048 + 256] == 3);
    CUDA_MEMCPY3D_v1 volume = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = bytes,
                               .srcPitch = 64,
                               .srcHeight = 4,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = bytes + 2048,
                               .dstPitch = 64,
                               .dstHeight = 4,
                               .WidthInBytes = 16,
                               .Height = 2,
                               .Depth = 2};
    memset(bytes + 2048, 0, 2048);
    OK(cuMemcpy3D(&volume));
    EXPECT(bytes[2048 + 256] == 3 && bytes[2048 + 320] == 3 && bytes[2048 + 128] == 0);
    memset(bytes + 2048, 0, 2048);
    OK(cuMemcpy3DAsync(&volume, NULL));
    OK(cuCtxSynchronize());
    EXPECT(bytes[2048 + 256] == 3);

    OK(cuModuleGetGlobal(NULL, &size, module, "global_words"));
    EXPECT(size == 256);
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(NULL, &size, module, "no_such_variable"));
    OK(cuMemAlloc_v2(&memory, 4));
    OK(cuMemsetD32_v2(memory, 1, 1));
    OK(cuModuleGetFunction(&count_up, module, "count_up"));
    OK(cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&memory}, NULL));
    OK(cuMemcpyDtoH_v2(&size, memory, 4));
    EXPECT(size == 2);
    return check_failed;
}
