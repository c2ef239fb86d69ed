// Page-locked buffers in stream order: device to host to device without the host waiting in between, then the
// same buffer filled again and again. Memory that is freed waits for what was copied out.
#include "driver.h"

enum { WORDS = 1 << 16, ROUNDS = 8 };

int main(void) {
    unsigned *buffer, *result, count = WORDS, delay = 5000, wrong = 0;
    CUstream stream;
    start();
    CUfunction slow_copy = kernel("slow_copy"), fill = kernel("fill");
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&buffer, WORDS * 4, 0));
    OK(cuMemAllocHost((void **)&result, WORDS * 4));
    CUdeviceptr a = allocate(WORDS * 4), b = allocate(WORDS * 4), c = allocate(WORDS * 4);
    memset(buffer, 0, WORDS * 4);
    for (unsigned round = 0; round < ROUNDS; round++) {
        QUIET(LAUNCH(fill, WORDS / 256, 256, stream, &a, &count, &round));
        QUIET(LAUNCH(slow_copy, 4, 64, stream, &b, &a, &count, &delay));
        QUIET(cuMemcpyDtoHAsync(buffer, b, WORDS * 4, stream));
        QUIET(cuMemcpyHtoDAsync(c, buffer, WORDS * 4, stream));
        QUIET(cuMemsetD32Async(b, 0, WORDS, stream));
        QUIET(cuMemcpyDtoHAsync(result, c, WORDS * 4, stream));
        QUIET(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < WORDS; i++)
            wrong += result[i] != (i ^ round) * 2654435761u || buffer[i] != result[i];
    }
    EXPECT(wrong == 0);
    digest("result", result, WORDS * 4);
    // To free memory waits for the device.
    memset(buffer, 0, WORDS * 4);
    OK(LAUNCH(slow_copy, 4, 64, stream, &b, &a, &count, &delay));
    OK(cuMemcpyDtoHAsync(buffer, b, WORDS * 4, stream));
    OK(cuMemFree(c));
    EXPECT(buffer[WORDS - 1] == ((WORDS - 1) ^ (ROUNDS - 1)) * 2654435761u);
    OK(cuMemFreeHost(buffer));
    OK(cuMemFreeHost(result));
    return check_failed;
}
