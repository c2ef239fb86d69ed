// How many blocks fit is asked at each launch by libraries: the answer stays until something is set.
#include "driver.h"

enum { ROUNDS = 50, BLOCK = 128, DEFAULT = 48 << 10, SHARED = 50 << 10, ALLOWED = 60 << 10 };

static size_t much(int block) {
    return (size_t)block * 150;
}

static int blocks(CUfunction function, size_t shared) {
    int count = -1;
    QUIET(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, BLOCK, shared));
    return count;
}

int main(void) {
    CUmodule module;
    CUfunction store;
    size_t room = 0;
    start();
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&store, module, "store"));
    const int before = blocks(store, 0), none = blocks(store, SHARED);
    printf("%d blocks, %d with much shared memory\n", before, none);
    EXPECT(none == 0); // no launch could have it
    int grid, block;
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, store, much, 0, 0));
    EXPECT(much(block) <= DEFAULT);
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT(blocks(store, 0) == before && blocks(store, SHARED) == none);
        QUIET(cuOccupancyAvailableDynamicSMemPerBlock(&room, store, 2, BLOCK));
    }
    OK(cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, ALLOWED));
    EXPECT(blocks(store, SHARED) > 0);
    OK(cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0));
    EXPECT(blocks(store, SHARED) == none);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&(int){0}, store, 0, 0));
    unsigned value = 7, stored = 0;
    CUdeviceptr word = allocate(4);
    OK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word, &value}, NULL));
    OK(cuMemcpyDtoH(&stored, word, 4));
    EXPECT(stored == value);
    OK(cuModuleUnload(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&(int){0}, store, BLOCK, 0));
    return check_failed;
}
