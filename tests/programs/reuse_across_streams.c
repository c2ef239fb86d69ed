// Memory is freed while a kernel on one stream still reads it, and its successor is written on another
// stream: the kernel must have seen the old content.
#include "driver.h"

enum { WORDS = 4096, ROUNDS = 10, SUCCESSORS = 32 };

int main(void) {
    static unsigned words[WORDS];
    CUdeviceptr successors[SUCCESSORS];
    CUstream reader, writer;
    unsigned wrong = 0, count = WORDS, delay = 50000;
    start();
    CUfunction slow_copy = kernel("slow_copy");
    OK(cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    CUdeviceptr result = allocate(sizeof words);
    for (unsigned round = 0; round < ROUNDS; round++) {
        CUdeviceptr old = allocate(sizeof words);
        QUIET(cuMemsetD32Async(old, round, WORDS, reader));
        QUIET(LAUNCH(slow_copy, 1, 64, reader, &result, &old, &count, &delay));
        QUIET(cuMemFree(old));
        for (int i = 0; i < SUCCESSORS; i++) { // one of them will have the old place
            successors[i] = allocate(sizeof words);
            QUIET(cuMemsetD32Async(successors[i], 0xabababab, WORDS, writer));
        }
        QUIET(cuMemcpyDtoHAsync(words, result, sizeof words, reader));
        QUIET(cuStreamSynchronize(reader));
        for (int i = 0; i < WORDS; i++)
            wrong += words[i] != round;
        for (int i = 0; i < SUCCESSORS; i++)
            QUIET(cuMemFree(successors[i]));
    }
    EXPECT(wrong == 0);
    return check_failed;
}
