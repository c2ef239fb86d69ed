// cuLaunchKernelEx with and without attributes, and three-dimensional grids and blocks.
#include "driver.h"

int main(void) {
    enum { THREADS = 3 * 2 * 4 * 5 * 3 * 2 };
    struct index {
        unsigned x, y, z;
    } blocks[THREADS], threads[THREADS];
    CUstream stream;
    start();
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    CUdeviceptr device_blocks = allocate(sizeof blocks), device_threads = allocate(sizeof threads);
    CUfunction where = kernel("where");
    CUlaunchConfig configuration = {.gridDimX = 3,
                                    .gridDimY = 2,
                                    .gridDimZ = 4,
                                    .blockDimX = 5,
                                    .blockDimY = 3,
                                    .blockDimZ = 2,
                                    .hStream = stream};
    OK(cuLaunchKernelEx(&configuration, where, (void *[]){&device_blocks, &device_threads}, NULL));
    OK(cuMemcpyDtoHAsync(blocks, device_blocks, sizeof blocks, stream));
    OK(cuMemcpyDtoHAsync(threads, device_threads, sizeof threads, stream));
    OK(cuStreamSynchronize(stream));
    unsigned wrong = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        const unsigned thread = i % 30, block = i / 30;
        wrong += threads[i].x != thread % 5 || threads[i].y != thread / 5 % 3 || threads[i].z != thread / 15;
        wrong += blocks[i].x != block % 3 || blocks[i].y != block / 3 % 2 || blocks[i].z != block / 6;
    }
    EXPECT(wrong == 0);
    CUlaunchAttribute priority = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 0};
    configuration.attrs = &priority;
    configuration.numAttrs = 1;
    OK(cuMemsetD8Async(device_blocks, 0, sizeof blocks, stream));
    OK(cuLaunchKernelEx(&configuration, where, (void *[]){&device_blocks, &device_threads}, NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(threads, device_blocks, sizeof threads));
    EXPECT(memcmp(blocks, threads, sizeof blocks) == 0);
    configuration.blockDimX = 2000;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernelEx(&configuration, where, (void *[]){&device_blocks, &device_threads}, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(NULL, where, NULL, NULL));
    digest("blocks", blocks, sizeof blocks);
    return check_failed;
}
