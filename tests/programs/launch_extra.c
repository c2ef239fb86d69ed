// Arguments as one packed buffer through `extra`, as Triton-like callers pass them.
#include "driver.h"

#include <stddef.h>

int main(void) {
    enum { COUNT = 1000 };
    struct arguments {
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

    /* A kernel's last parameters may be missing, as NCCL's are: what they are then nobody says. */
    size = offsetof(struct arguments, seed);
    OK(cuMemsetD32(arguments.data, 0, COUNT));
    OK(cuLaunchKernel(kernel("fill"), 8, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH(words, arguments.data, sizeof words));
    unsigned empty = 0;
    for (unsigned i = 0; i < COUNT; i++)
        empty += words[i] == 0;
    EXPECT(empty <= 1);
    size = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(kernel("fill"), 8, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    return check_failed;
}
