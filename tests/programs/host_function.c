// Host functions in a stream: a driver that takes them calls each once, one that does not says so; the stream
// goes on.
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
    const CUresult launched = cuLaunchHostFunc(NULL, callback, &called);
    const CUresult added = cuStreamAddCallback(NULL, stream_callback, &called, 0);
    CALL(launched);
    CALL(added);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == 3);
    EXPECT(called == (launched == CUDA_SUCCESS) + (added == CUDA_SUCCESS));
    EXPECT(launched == CUDA_SUCCESS || launched == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(added == launched);
    return check_failed;
}
