// The legacy default stream waits for all blocking streams, and they for it; non-blocking streams take no
// part.
#include "driver.h"

enum { WORDS = 1024 };

int main(void) {
    static unsigned words[WORDS];
    CUstream first, second, apart;
    unsigned count = WORDS, delay = 1000000, quick = 1, factor = 5, term = 1, flags = 99, wrong = 0;
    start();
    CUfunction slow_copy = kernel("slow_copy"), affine = kernel("affine");
    OK(cuStreamCreate(&first, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    OK(cuStreamGetFlags(first, &flags));
    EXPECT(flags == CU_STREAM_DEFAULT);
    OK(cuStreamGetFlags(apart, &flags));
    EXPECT(flags == CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = allocate(sizeof words), b = allocate(sizeof words), c = allocate(sizeof words);
    OK(cuMemsetD32(a, 1, WORDS));
    OK(cuMemsetD32(b, 0, WORDS));
    OK(cuCtxSynchronize());
    // a =1=> b on the first stream, b * 5 + 1 on the legacy stream, b =2=> c on the second: 6 only in this
    // order.
    OK(LAUNCH(slow_copy, 1, 64, first, &b, &a, &count, &delay));
    OK(LAUNCH(affine, 4, 256, NULL, &b, &count, &factor, &term));
    OK(LAUNCH(slow_copy, 1, 64, second, &c, &b, &count, &quick));
    OK(LAUNCH(affine, 4, 256, CU_STREAM_LEGACY, &c, &count, &factor, &term));
    OK(cuMemcpyDtoH(words, c, sizeof words));
    for (int i = 0; i < WORDS; i++)
        wrong += words[i] != 31;
    EXPECT(wrong == 0);
    OK(cuStreamQuery(first));
    OK(cuStreamDestroy(first));
    OK(cuStreamDestroy(second));
    OK(cuStreamDestroy(apart));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&first, 77));
    return check_failed;
}
