// Page-locked memory is its context's: when that ends, memory that was allocated is gone, and memory that was
// registered is the program's as any other, with all in it that was copied there.
#include <sys/mman.h>

#include "driver.h"

enum { COUNT = 4 << 20, PAGE = 4096 }; // words: copies that take their time

static unsigned *ordinary;

static void ends_with(void (*end)(void)) {
    CUdeviceptr memory = allocate(COUNT * 4), seen = 0;
    void *locked = NULL, *mapped = NULL;
    unsigned flags = 0;
    memset(ordinary, 0, COUNT * 4);
    OK(cuMemHostRegister(ordinary, COUNT * 4, 0));
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(ordinary, 4096, 0));
    OK(cuMemHostAlloc(&locked, 1 << 20, 0));
    OK(cuMemHostAlloc(&mapped, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, mapped, 0));
    OK(cuMemsetD32(seen, 7, 16));
    OK(cuMemsetD32Async(memory, 0x5eed, COUNT, NULL));
    OK(cuMemcpyDtoHAsync(ordinary, memory, COUNT * 4, NULL));
    end();
    EXPECT(ordinary[0] == 0x5eed && ordinary[COUNT - 1] == 0x5eed);
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(ordinary));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(locked));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(mapped));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, locked));
    OK(cuMemHostRegister(ordinary, COUNT * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostUnregister(ordinary));
    for (int i = 0; i < 3; i++) { // there is room for as much again
        OK(cuMemHostAlloc(&mapped, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
        OK(cuMemHostAlloc(&locked, 1 << 20, 0));
    }
}

static void reset(void) {
    OK(cuDevicePrimaryCtxReset(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
}

static void destroy(void) {
    CUcontext own = NULL;
    OK(cuCtxGetCurrent(&own));
    OK(cuCtxDestroy(own));
}

// A kernel of another context was given memory of this one: it does not end with that context, and what the
// kernel wrote is there.
static void outlives_its_user(unsigned *kept) {
    CUcontext own;
    CUmodule loaded;
    CUfunction count_up;
    kept[0] = 5;
    kept[1] = 50;
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&count_up, loaded, "count_up"));
    OK(LAUNCH(count_up, 1, 1, NULL, &kept));
    OK(cuCtxDestroy(own));
    EXPECT(kept[0] == 6 && kept[1] == 50);
    kept[0] = 10;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &kept));
    OK(cuCtxSynchronize());
    EXPECT(kept[0] == 11 && kept[1] == 50);
}

// Memory that one context has registered, and a kernel of another one was given: when the first ends it is
// the program's alone, which may let go of it.
static void registered_elsewhere(void) {
    CUcontext registering;
    CUdeviceptr seen = 0;
    unsigned *words = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cuCtxCreate(&registering, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuMemHostRegister(words, PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuCtxSetCurrent(context));
    OK(cuMemHostGetDevicePointer(&seen, words, 0));
    words[0] = 5;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &seen));
    OK(cuCtxSynchronize());
    EXPECT(words[0] == 6);
    OK(cuCtxDestroy(registering));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&seen, words, 0));
    munmap(words, PAGE);
    expect_it_still_works();
}

int main(void) {
    CUcontext own;
    CUdeviceptr word;
    void *kept = NULL;
    ordinary = malloc(COUNT * 4);
    start();
    ends_with(reset);
    ends_with(reset);
    OK(cuMemHostAlloc(&kept, 4096, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    ends_with(destroy);
    // what another context has stays
    *(unsigned *)kept = 77;
    word = allocate(4);
    OK(cuMemcpyHtoDAsync(word, kept, 4, NULL));
    OK(cuMemcpyDtoHAsync((unsigned *)kept + 1, word, 4, NULL));
    OK(cuCtxSynchronize());
    EXPECT(((unsigned *)kept)[1] == 77);
    OK(cuModuleLoadData(&module, kernels_ptx));
    outlives_its_user(kept);
    OK(cuMemFreeHost(kept));
    registered_elsewhere();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(ordinary, SIZE_MAX, 0));
    free(ordinary);
    return check_failed;
}
