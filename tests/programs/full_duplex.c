// A flood in both directions from one thread that waits for nothing: answers pile up while requests are
// written, and neither may stop the other.
#include "driver.h"

enum { PIECES = 32, WORDS = 1 << 20 };

int main(void) {
    unsigned *up, *down, wrong = 0;
    const size_t piece = WORDS * 4;
    CUstream rising, falling;
    start();
    OK(cuMemHostAlloc((void **)&up, piece * PIECES, 0));
    OK(cuMemHostAlloc((void **)&down, piece * PIECES, 0));
    OK(cuStreamCreate(&rising, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&falling, CU_STREAM_NON_BLOCKING));
    CUdeviceptr target = allocate(piece * PIECES), source = allocate(piece * PIECES);
    for (unsigned i = 0; i < PIECES; i++)
        QUIET(cuMemsetD32(source + i * piece, i + 1, WORDS));
    OK(cuCtxSynchronize()); // the streams do not wait for the default one
    for (size_t i = 0; i < (size_t)WORDS * PIECES; i++)
        up[i] = (unsigned)i * 2654435761u;
    for (unsigned i = 0; i < PIECES; i++) {
        QUIET(cuMemcpyDtoHAsync(down + (size_t)i * WORDS, source + i * piece, piece, falling));
        QUIET(cuMemcpyHtoDAsync(target + i * piece, up + (size_t)i * WORDS, piece, rising));
    }
    OK(cuStreamSynchronize(rising));
    OK(cuStreamSynchronize(falling));
    for (size_t i = 0; i < (size_t)WORDS * PIECES; i++)
        wrong += down[i] != i / WORDS + 1;
    EXPECT(wrong == 0);
    memset(down, 0, piece * PIECES);
    OK(cuMemcpyDtoH(down, target, piece * PIECES));
    EXPECT(memcmp(up, down, piece * PIECES) == 0);
    OK(cuMemFreeHost(up));
    OK(cuMemFreeHost(down));
    return check_failed;
}
