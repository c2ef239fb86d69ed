// Streams with priorities, their ids and flags, and one context's default streams as handles.
#include "driver.h"

int main(void) {
    int least = 0, greatest = 0, priority = 99;
    unsigned long long first_id = 0, second_id = 0;
    CUstream low, high;
    CUcontext owner;
    unsigned value = 0;
    start();
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    printf("priorities %d to %d\n", least, greatest);
    OK(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
    OK(cuStreamCreateWithPriority(&high, CU_STREAM_DEFAULT, greatest - 10));
    OK(cuStreamGetPriority(low, &priority));
    EXPECT(priority == least);
    OK(cuStreamGetPriority(high, &priority));
    EXPECT(priority == greatest);
    OK(cuStreamGetId(low, &first_id));
    OK(cuStreamGetId(high, &second_id));
    EXPECT(first_id != second_id);
    for (int i = 0; i < 2; i++) { // one context's legacy stream is not another's
        CUcontext own;
        OK(cuStreamGetId(i == 0 ? NULL : CU_STREAM_LEGACY, &first_id));
        OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
        OK(cuStreamGetId(i == 0 ? NULL : CU_STREAM_LEGACY, &second_id));
        OK(cuCtxDestroy(own));
        OK(cuCtxSetCurrent(context));
        EXPECT(first_id != second_id);
        OK(cuStreamGetId(NULL, &second_id));
        EXPECT(first_id == second_id);
    }
    OK(cuStreamGetCtx(low, &owner));
    EXPECT(owner == context);
    OK(cuStreamGetCtx(NULL, &owner));
    EXPECT(owner == context);
    CUdeviceptr counter = allocate(4);
    CUfunction count_up = kernel("count_up");
    OK(cuMemsetD32Async(counter, 0, 1, low));
    OK(LAUNCH(count_up, 1, 1, low, &counter));
    OK(cuStreamSynchronize(low));
    OK(LAUNCH(count_up, 1, 1, high, &counter));
    OK(cuStreamSynchronize(high));
    OK(LAUNCH(count_up, 1, 1, CU_STREAM_PER_THREAD, &counter));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == 3);
    return check_failed;
}
