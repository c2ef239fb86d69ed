// Free memory to the byte, before and after: contexts that end, the primary one released and reset, a device
// that was full, arrays.
//
// device: sim (a GPU has other programs, and its driver keeps memory for what comes next)
#include "driver.h"

enum { MAXIMUM = 4096, BLOCK = 256 << 20, LEFT = 8 << 20 };

static size_t left_free(void) {
    size_t left = 0, total = 0;
    QUIET(cuMemGetInfo(&left, &total));
    return left;
}

static void contexts(void) {
    size_t before = left_free();
    CUcontext own = NULL;
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuMemsetD32(allocate(LEFT), 6, 1));
    OK(cuCtxDestroy(own));
    EXPECT(left_free() == before);
}

static void primary(void) {
    size_t before = left_free();
    CUdeviceptr memory = allocate(LEFT);
    OK(cuMemsetD32(memory, 6, 1));
    OK(cuDevicePrimaryCtxRelease(device));
    start();
    EXPECT(left_free() == before);
    allocate(LEFT);
    OK(cuDevicePrimaryCtxReset(device));
    start();
    EXPECT(left_free() == before);
}

static void full(void) {
    static CUdeviceptr blocks[MAXIMUM];
    size_t before = left_free();
    int taken = 0;
    while (taken < MAXIMUM && cuMemAlloc(&blocks[taken], BLOCK) == CUDA_SUCCESS)
        taken++;
    EXPECT(taken > 0 && left_free() < BLOCK);
    for (int i = 0; i < taken; i++)
        QUIET(cuMemFree(blocks[i]));
    EXPECT(left_free() == before);
}

static void arrays(void) {
    size_t before = left_free();
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmipmappedArray mipmap;
    CUarray level;
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 7));
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    EXPECT(left_free() < before);
    OK(cuMipmappedArrayDestroy(mipmap));
    EXPECT(left_free() == before);
}

int main(void) {
    start();
    contexts();
    primary();
    full();
    arrays();
    expect_it_still_works();
    return check_failed;
}
