// Where page-locked memory begins and ends for fills and copies: registered memory is filled by the program's
// own address, nothing behind an allocation is, and a copy of several rows says how far they are apart.
#include "driver.h"

enum { SIZE = 4096 };

static int all(const unsigned char *memory, size_t from, size_t to, unsigned char value) {
    while (from < to && memory[from] == value)
        from++;
    return from == to;
}

int main(void) {
    start();
    unsigned char *pinned, *registered = aligned_alloc(SIZE, SIZE);
    memset(registered, 1, SIZE);
    OK(cuMemHostAlloc((void **)&pinned, SIZE, 0));
    OK(cuMemHostRegister(registered, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr locked = (CUdeviceptr)pinned, own = (CUdeviceptr)registered, memory = allocate(SIZE);
    OK(cuMemsetD8(locked, 3, SIZE));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(locked, 4, SIZE + 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(locked + SIZE - 4, 4, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(locked, SIZE, 4, 20, 2));
    OK(cuMemsetD2D8(locked + 100, SIZE / 2, 5, 20, 2));
    OK(cuCtxSynchronize());
    EXPECT(all(pinned, 0, 100, 3) && all(pinned, 100, 120, 5) && all(pinned, 2148, 2168, 5));
    EXPECT(all(pinned, 2168, SIZE, 3));
    OK(cuMemsetD8(own + 8, 6, 100));
    OK(cuMemsetD32(own + 200, 0x07070707, 10));
    OK(cuCtxSynchronize());
    EXPECT(all(registered, 0, 8, 1) && all(registered, 8, 108, 6) && all(registered, 200, 240, 7));

    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = registered,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 64,
                          .WidthInBytes = 64,
                          .Height = 8};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&rows));
    rows.Height = 1;
    OK(cuMemcpy2D(&rows));
    OK(cuMemcpyDtoH(pinned, memory, 64));
    EXPECT(all(pinned, 0, 8, 1) && all(pinned, 8, 64, 6));

    CUmemAllocationProp fabric = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}}};
    CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    CUmemoryPool pool;
    size_t granule;
    CALL(cuMemGetAllocationGranularity(&granule, &fabric, (CUmemAllocationGranularity_flags)7));
    CALL(cuMemGetDefaultMemPool(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister((void *)memory, SIZE, 0));
    OK(cuMemHostUnregister(registered));
    free(registered);
    expect_it_still_works();
    return check_failed;
}
