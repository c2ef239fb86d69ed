// Copies and memsets that leave their allocation, or touch none, are refused at once and change nothing.
#include "driver.h"

// Of 16 bytes, in slices of four rows of 64, but for what is given.
static CUresult box(CUdeviceptr memory, CUDA_MEMCPY3D c) {
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = memory;
    c.dstDevice = memory + 65536;
    c.srcPitch = c.dstPitch = 64;
    c.srcHeight = c.srcHeight ? c.srcHeight : 4;
    c.dstHeight = c.dstHeight ? c.dstHeight : 4;
    c.WidthInBytes = 16;
    c.Height = c.Height ? c.Height : 1;
    c.Depth = c.Depth ? c.Depth : 1;
    return cuMemcpy3D(&c);
}

// Two slices, whose height is said or is not.
static CUresult slices(CUdeviceptr memory, size_t height) {
    return cuMemcpy3D(&(CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                       .srcDevice = memory,
                                       .srcPitch = 64,
                                       .srcHeight = height,
                                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                       .dstDevice = memory + 65536,
                                       .dstPitch = 64,
                                       .dstHeight = 4,
                                       .WidthInBytes = 16,
                                       .Height = 4,
                                       .Depth = 2});
}

// Offsets and extents whose sums or products are more than 64 bits hold, and rows outside their slice.
static void boxes(CUdeviceptr memory) {
    const size_t half = (size_t)1 << 63, deep = ((size_t)1 << 56) + 1;
    OK(box(memory, (CUDA_MEMCPY3D){.srcY = 3}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.srcY = 4}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.dstHeight = 1, .Height = 2}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.dstXInBytes = SIZE_MAX}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.srcY = SIZE_MAX}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.srcZ = half}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.Depth = deep}));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          box(memory, (CUDA_MEMCPY3D){.srcHeight = half, .dstHeight = half, .Depth = 3}));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.Height = half + 1}));
    // of a copy whose last slice does not fit, nothing is made; slices are as far apart as is said
    unsigned first = 0;
    OK(cuMemsetD8(memory, 1, (size_t)2 << 20));
    OK(cuMemsetD8(memory, 2, 1024));
    FAILS(CUDA_ERROR_INVALID_VALUE, box(memory, (CUDA_MEMCPY3D){.dstHeight = 16384, .Depth = 3}));
    OK(cuMemcpyDtoH(&first, memory + 65536, 4));
    EXPECT(first == 0x01010101);
    FAILS(CUDA_ERROR_INVALID_VALUE, slices(memory, 0));
    OK(slices(memory, 4));
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 64,
                          .dstXInBytes = SIZE_MAX,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory + 65536,
                          .dstPitch = 64,
                          .WidthInBytes = 16,
                          .Height = 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&flat));
    OK(cuMemsetD2D32(memory, 3, 0, 4, 1)); // of one row nobody asks for the pitch
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(memory, 18, 0, 4, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D16(memory, 5, 0, 0, 4)); // also where there is nothing to fill
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D16(memory + 1, 64, 0, 0, 4));
    CUDA_MEMCPY2D nowhere = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, // a place behind a null pointer
                             .srcY = 64,
                             .srcPitch = 256,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = memory,
                             .dstPitch = 64,
                             .WidthInBytes = 32,
                             .Height = 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DUnaligned(&nowhere));
    nowhere.srcMemoryType = CU_MEMORYTYPE_HOST;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&nowhere));
}

int main(void) {
    start();
    static unsigned host[2048];
    CUdeviceptr memory = allocate((size_t)2 << 20);
    unsigned count = 1024, seed = 9;
    OK(LAUNCH(kernel("fill"), 4, 256, NULL, &memory, &count, &seed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(memory + ((size_t)2 << 20) - 16, host, 32));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, memory - 16, 32));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, 0x1000, 32));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(0, 0, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory + 2, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(memory + 1, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 16));
    OK(cuMemcpyHtoD(memory, host, 0));
    OK(cuMemsetD8(memory, 0, 0));
    boxes(allocate((size_t)2 << 20));
    OK(cuMemcpyDtoH(host, memory, 4096));
    int wrong = 0;
    for (unsigned i = 0; i < 1024; i++)
        wrong += host[i] != (i ^ seed) * 2654435761u;
    EXPECT(wrong == 0);
    digest("memory", host, 4096);
    return check_failed;
}
