// Arguments as one packed buffer through `extra`, as Triton-like callers pass them.
#include "driver.h"

int main(void) {
    enum { COUNT = 1000 };
    struct {
        CUdeviceptr data;
        unsigned count, seed;
    } arguments = {.count = COUNT, .seed = 4242};
    unsigned words[COUNT], wrong = 0;
    size_t size = sizeof arguments;
    start();
    arguments.data = allocate(sizeof words);
    OK(cuMemsetD32(arguments.data, 0, COUNT));
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(kernel("fill"), 8, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH(words, arguments.data, sizeof words));
    for (unsigned i = 0; i < COUNT; i++)
        wrong += words[i] != (i ^ 4242) * 2654435761u;
    EXPECT(wrong == 0);
    return check_failed;
}
