// Host functions in a stream: each runs once, in the stream's order, never two of one stream at once; what
// was copied out before is there, and what is copied in behind is read after they ran.
#include "driver.h"

#include <stdatomic.h>
#include <time.h>

enum { ROUNDS = 20, WORDS = 1 << 16 };

struct step {
    int index, status;
    const unsigned *seen; // by a copy before it
    unsigned *next;       // for a copy behind it
};

static atomic_int inside, finished, overlapped, disorder, wrong_status, wrong_data;

static void run(struct step *step) {
    overlapped += atomic_fetch_add(&inside, 1) != 0;
    disorder += atomic_fetch_add(&finished, 1) != step->index;
    for (int i = 0; step->seen && i < WORDS; i++)
        wrong_data += step->seen[i] != (unsigned)step->index;
    for (int i = 0; step->next && i < WORDS; i++)
        step->next[i] = (unsigned)step->index + 1;
    atomic_fetch_sub(&inside, 1);
}

static void CUDA_CB function(void *step) {
    run(step);
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *step) {
    (void)stream;
    wrong_status += status != CUDA_SUCCESS;
    run(step);
}

// The word goes device → host → function → device, again and again, without a wait of the program's.
static void chain(CUstream stream) {
    static struct step steps[ROUNDS];
    unsigned *buffer, result = 0;
    CUdeviceptr memory = allocate(sizeof(unsigned) * WORDS);
    OK(cuMemAllocHost((void **)&buffer, sizeof(unsigned) * WORDS));
    OK(cuMemsetD32Async(memory, 0, WORDS, stream));
    finished = 0;
    for (int i = 0; i < ROUNDS; i++) {
        steps[i] = (struct step){.index = i, .seen = buffer, .next = buffer};
        QUIET(cuMemcpyDtoHAsync(buffer, memory, sizeof(unsigned) * WORDS, stream));
        if (i % 2)
            QUIET(cuStreamAddCallback(stream, callback, &steps[i], 0));
        else
            QUIET(cuLaunchHostFunc(stream, function, &steps[i]));
        QUIET(cuMemcpyHtoDAsync(memory, buffer, sizeof(unsigned) * WORDS, stream));
    }
    OK(cuStreamSynchronize(stream));
    EXPECT(finished == ROUNDS);
    OK(cuMemcpyDtoH(&result, memory + sizeof(unsigned) * (WORDS - 1), sizeof result));
    EXPECT(result == ROUNDS);
    OK(cuMemFreeHost(buffer));
    OK(cuMemFree(memory));
}

static void between_launches(void) {
    unsigned value = 0;
    static struct step step;
    step.index = 0;
    finished = 0;
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 2, 1));
    OK(cuLaunchHostFunc(NULL, function, &step));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == 3);
    EXPECT(finished == 1);
    OK(cuMemFree(counter));
}

// Behind a function that takes its time, pageable memory is read when the copy is asked for, or before that
// returns: CUDA leaves open which.
static void CUDA_CB linger(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void CUDA_CB linger_long(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
}

static void captured(CUstream stream) {
    unsigned value = 7, result = 0;
    CUdeviceptr memory = allocate(4);
    OK(cuLaunchHostFunc(stream, linger, NULL));
    OK(cuMemcpyHtoDAsync(memory, &value, 4, stream));
    value = 8;
    OK(cuMemsetD8Async(memory + 3, 1, 1, stream));
    OK(cuMemcpyDtoHAsync(&result, memory, 4, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(result == 0x01000007);
    OK(cuMemFree(memory));
}

static void CUDA_CB late_nine(void *word) {
    linger(NULL);
    *(unsigned *)word = 9;
}

// A copy within the program's memory is in the stream's order, too.
static void within(CUstream stream) {
    static unsigned from, to, again;
    OK(cuLaunchHostFunc(stream, late_nine, &from));
    OK(cuMemcpyAsync((CUdeviceptr)&to, (CUdeviceptr)&from, 4, stream));
    OK(cuMemcpyAsync((CUdeviceptr)&again, (CUdeviceptr)&to, 4, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(to == 9 && again == 9);
}

// More than any device has room for stands behind a function: whoever enqueues it waits for that function,
// and nobody waits for ever.
static void crowded(CUstream stream) {
    CUdeviceptr memory = allocate(4);
    OK(cuLaunchHostFunc(stream, linger_long, NULL));
    for (int i = 0; i < 20000; i++)
        QUIET(cuMemsetD32Async(memory, (unsigned)i, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(memory));
}

int main(void) {
    CUstream stream;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    between_launches();
    chain(stream);
    chain(NULL);
    captured(stream);
    within(stream);
    crowded(stream);
    EXPECT(overlapped == 0 && disorder == 0 && wrong_status == 0 && wrong_data == 0);
    return check_failed;
}
