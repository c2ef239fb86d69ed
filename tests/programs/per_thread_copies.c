// Blocking copies in a thread's own default stream: what they bring is there when they return, for streams
// that do not wait for that one, and for the program where it sees the memory.
//
// compile: -DCUDA_API_PER_THREAD_DEFAULT_STREAM
#include "driver.h"

enum { WORDS = 64 };

static CUstream other;
static CUdeviceptr idle, busy;

// The copy that follows is not made at once.
static void keep_busy(void) {
    unsigned count = WORDS, delay = 1000000;
    QUIET(LAUNCH(kernel("slow_copy"), 1, 64, NULL, &busy, &idle, &count, &delay));
}

static unsigned as_others_see_it(CUdeviceptr memory) {
    unsigned seen[WORDS] = {0};
    QUIET(cuMemcpyDtoHAsync(seen, memory, sizeof seen, other));
    QUIET(cuStreamSynchronize(other));
    return seen[WORDS - 1];
}

int main(void) {
    unsigned *page_locked = NULL;
    CUdeviceptr memory, managed;
    CUarray array;
    start();
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&page_locked, 4 * WORDS, 0));
    OK(cuMemAllocManaged(&managed, 4 * WORDS, CU_MEM_ATTACH_GLOBAL));
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){WORDS, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    idle = allocate(4 * WORDS);
    busy = allocate(4 * WORDS);
    memory = allocate(4 * WORDS);
    OK(cuMemsetD32(memory, 0, WORDS));
    OK(cuCtxSynchronize());

    page_locked[WORDS - 1] = 5;
    keep_busy();
    OK(cuMemcpyHtoD(memory, page_locked, 4 * WORDS));
    EXPECT(as_others_see_it(memory) == 5);

    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = page_locked,
                                .srcPitch = 2 * WORDS,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = memory,
                                .dstPitch = 2 * WORDS,
                                .WidthInBytes = 2 * WORDS,
                                .Height = 2};
    page_locked[WORDS - 1] = 6;
    keep_busy();
    OK(cuMemcpy2D(&rows));
    EXPECT(as_others_see_it(memory) == 6);

    page_locked[WORDS - 1] = 7;
    keep_busy();
    OK(cuMemcpyHtoA(array, 0, page_locked, 4 * WORDS));
    page_locked[WORDS - 1] = 0;
    OK(cuMemcpyAtoHAsync(page_locked, array, 0, 4 * WORDS, other));
    OK(cuStreamSynchronize(other));
    EXPECT(page_locked[WORDS - 1] == 7);

    page_locked[WORDS - 1] = 8;
    keep_busy();
    OK(cuMemcpyHtoD(managed, page_locked, 4 * WORDS));
    EXPECT(((unsigned *)managed)[WORDS - 1] == 8);
    return check_failed;
}
