// A callback is told its stream as it was given to cuStreamAddCallback: NULL for either default stream.
#include "driver.h"

static void mark(CUstream stream, CUresult status, void *told) {
    *(CUstream *)told = status == CUDA_SUCCESS ? stream : (CUstream)told;
}

typedef CUresult (*add_callback)(CUstream, CUstreamCallback, void *, unsigned);

static void expect_told(add_callback add, CUstream stream) {
    CUstream told = (CUstream)&told;
    OK(add(stream, mark, &told, 0));
    OK(cuCtxSynchronize());
    EXPECT(told == stream);
}

int main(void) {
    const cuuint64_t flags[] = {CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
    CUstream own;
    start();
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        void *found = NULL;
        OK(cuGetProcAddress("cuStreamAddCallback", &found, 7000, flags[i], NULL));
        expect_told((add_callback)found, NULL);
        expect_told((add_callback)found, CU_STREAM_LEGACY);
        expect_told((add_callback)found, CU_STREAM_PER_THREAD);
        expect_told((add_callback)found, own);
    }
    OK(cuStreamDestroy(own));
    expect_it_still_works();
    return check_failed;
}
