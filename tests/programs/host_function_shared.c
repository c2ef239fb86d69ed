// A function of the program in a stream sees what kernels before it wrote to memory that program and device
// share, also where the program looked at that memory before, and kernels behind it see what it wrote.
#include "driver.h"

enum { PAGE = 4096, ROUNDS = 10 };

struct step {
    volatile unsigned *words; // the first is the kernels', the second the function's
    unsigned seen;
};

static void CUDA_CB answer(void *data) {
    struct step *step = data;
    step->seen = step->words[0];
    step->words[1] = step->seen + 100;
}

static void CUDA_CB answer_stream(CUstream stream, CUresult status, void *data) {
    (void)stream;
    if (status == CUDA_SUCCESS)
        answer(data);
}

// `there`: where kernels have the words.
static void talk(const char *what, unsigned *words, CUdeviceptr there) {
    CUstream stream;
    CUdeviceptr source = allocate(4), result = allocate(4), second = there + 4;
    unsigned count = 1, delay = 20000, right = 0;
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        struct step step = {.words = words};
        unsigned got = 0;
        words[1] = round;
        QUIET(cuMemsetD32Async(source, round, 1, stream));
        QUIET(LAUNCH(kernel("slow_copy"), 1, 1, stream, &there, &source, &count, &delay));
        unsigned looked = *(volatile unsigned *)words; // may be old or new
        if (round % 2)
            QUIET(cuLaunchHostFunc(stream, answer, &step));
        else
            QUIET(cuStreamAddCallback(stream, answer_stream, &step, 0));
        QUIET(LAUNCH(kernel("load"), 1, 1, stream, &result, &second));
        QUIET(cuMemcpyDtoHAsync(&got, result, 4, stream));
        QUIET(cuStreamSynchronize(stream));
        right += step.seen == round && got == round + 100 && words[1] == round + 100 && looked <= round;
    }
    printf("%s: %u of %d\n", what, right, ROUNDS);
    EXPECT(right == ROUNDS);
    QUIET(cuStreamDestroy(stream));
}

static volatile int created;

static void CUDA_CB look_late(void *data) {
    struct step *step = data;
    while (!created) {
    }
    step->seen = step->words[0];
}

// Where the function looks, other calls were made since: they have no more to wait for it than it for them.
static void beside_calls(unsigned *words) {
    CUarray array;
    CUstream stream;
    CUdeviceptr there = (CUdeviceptr)words, memory = allocate(65536);
    unsigned value = 77;
    struct step step = {.words = words};
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuMemsetD8Async(memory, 0, 65536, stream));
    OK(cuMemFree(memory));
    OK(LAUNCH(kernel("store"), 1, 1, stream, &there, &value));
    OK(cuLaunchHostFunc(stream, look_late, &step));
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){64, 64, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuMemAlloc(&memory, 65536));
    created = 1;
    OK(cuStreamSynchronize(stream));
    EXPECT(step.seen == 77);
    OK(cuArrayDestroy(array));
    OK(cuMemFree(memory));
    OK(cuStreamDestroy(stream));
}

int main(void) {
    unsigned *mapped, *pinned, *registered = aligned_alloc(PAGE, PAGE);
    CUdeviceptr managed, seen;
    start();
    memset(registered, 0, PAGE);
    OK(cuMemHostAlloc((void **)&mapped, PAGE, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostAlloc((void **)&pinned, PAGE, 0));
    OK(cuMemAllocManaged(&managed, PAGE, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostRegister(registered, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, registered, 0));
    mapped[0] = pinned[0] = 0;
    *(unsigned *)managed = 0;
    talk("mapped", mapped, (CUdeviceptr)mapped);
    talk("page-locked", pinned, (CUdeviceptr)pinned);
    talk("managed", (unsigned *)managed, managed);
    talk("registered", registered, seen);
    beside_calls(mapped);
    OK(cuMemHostUnregister(registered));
    OK(cuMemFree(managed));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost(mapped));
    free(registered);
    return check_failed;
}
