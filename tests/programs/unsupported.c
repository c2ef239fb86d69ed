// Functions that gpuferry does not carry yet exist and say so; what they refuse has no effect on the rest.
//
// device: sim   a GPU's own driver has them
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr counter = allocate(4);
    CUgraphNode node;
    CUDA_EXT_SEM_WAIT_NODE_PARAMS wait = {0};
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal = {0};
    OK(cuMemsetD32(counter, 1, 1));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddExternalSemaphoresWaitNode(&node, NULL, NULL, 0, &wait));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddExternalSemaphoresSignalNode(&node, NULL, NULL, 0, &signal));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 2);
    return check_failed;
}
