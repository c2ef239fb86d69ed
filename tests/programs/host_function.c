// Host functions in a stream are not carried: both kinds say so, and the stream goes on.
//
// device: sim   a GPU's own driver runs them
#include "driver.h"

static void CUDA_CB callback(void *called) {
    *(int *)called += 1;
}

static void CUDA_CB stream_callback(CUstream stream, CUresult status, void *called) {
    (void)stream, (void)status;
    *(int *)called += 1;
}

int main(void) {
    int called = 0;
    unsigned value = 0;
    start();
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 2, 1));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuLaunchHostFunc(NULL, callback, &called));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuStreamAddCallback(NULL, stream_callback, &called, 0));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == 3 && called == 0);
    return check_failed;
}
