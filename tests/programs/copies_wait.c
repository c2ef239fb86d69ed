// A blocking copy into the program's memory is a wait: what kernels before it in its stream wrote to memory
// that program and device share is seen behind it, also where the program looked while they ran.
#include "driver.h"

enum { PAGE = 4096, ROUNDS = 40 };

static CUdeviceptr source, memory;
static CUarray array;

// Rounds in which what the kernel wrote was seen behind the copy.
static unsigned seen_behind(volatile unsigned *word, CUdeviceptr there, bool of_array) {
    unsigned count = 1, right = 0, back[4];
    *word = 0;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        unsigned delay = 2000 * round;
        QUIET(cuMemsetD32(source, round, 1));
        QUIET(LAUNCH(kernel("slow_copy"), 1, 1, NULL, &there, &source, &count, &delay));
        unsigned looked = *word;
        if (of_array)
            QUIET(cuMemcpyAtoH(back, array, 0, sizeof back));
        else
            QUIET(cuMemcpyDtoH(back, memory, sizeof back));
        if (round % 2)
            QUIET(cuStreamSynchronize(NULL));
        right += *word == round && looked <= round;
    }
    return right;
}

int main(void) {
    unsigned *mapped, *registered = aligned_alloc(PAGE, PAGE);
    CUdeviceptr seen;
    start();
    memset(registered, 0, PAGE);
    source = allocate(4);
    memory = allocate(PAGE);
    OK(cuMemsetD8(memory, 0, PAGE));
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuMemHostAlloc((void **)&mapped, PAGE, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostRegister(registered, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, registered, 0));
    mapped[0] = 0;
    EXPECT(seen_behind(mapped, (CUdeviceptr)mapped, false) == ROUNDS);
    EXPECT(seen_behind(mapped, (CUdeviceptr)mapped, true) == ROUNDS);
    EXPECT(seen_behind(registered, seen, false) == ROUNDS);
    EXPECT(seen_behind(registered, seen, true) == ROUNDS);
    OK(cuMemHostUnregister(registered));
    OK(cuMemFreeHost(mapped));
    OK(cuArrayDestroy(array));
    free(registered);
    return check_failed;
}
