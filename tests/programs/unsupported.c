// A function that gpuferry does not carry yet exists and says so; what it refuses has no effect on the rest.
//
// device: sim   a GPU's own driver has it
#include "driver.h"

int main(void) {
    start();
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 1, 1));
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          cuStreamBeginRecaptureToGraph(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 2);
    return check_failed;
}
