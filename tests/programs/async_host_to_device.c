// Pageable host memory may be changed as soon as an asynchronous copy from it has returned; page-locked
// memory once its stream was waited for.
#include "driver.h"

enum { WORDS = 20000, ROUNDS = 20 };

int main(void) {
    static unsigned pageable[WORDS], back[WORDS];
    unsigned *pinned, wrong = 0;
    CUstream stream;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&pinned, sizeof pageable, 0));
    CUdeviceptr slots = allocate(sizeof pageable * ROUNDS);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned *host = round % 2 ? pinned : pageable;
        for (unsigned i = 0; i < WORDS; i++)
            host[i] = i * 31 + round;
        QUIET(cuMemcpyHtoDAsync(slots + round * sizeof pageable, host, sizeof pageable, stream));
        if (host == pinned)
            QUIET(cuStreamSynchronize(stream));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned round = 0; round < ROUNDS; round++) {
        QUIET(cuMemcpyDtoH(back, slots + round * sizeof back, sizeof back));
        for (unsigned i = 0; i < WORDS; i++)
            wrong += back[i] != i * 31 + round;
    }
    EXPECT(wrong == 0);
    digest("last", back, sizeof back);
    OK(cuMemFreeHost(pinned));
    return check_failed;
}
