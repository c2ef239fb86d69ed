// The program's own memory page-locked and used in asynchronous copies; flags and errors of registration.
#include <unistd.h>

#include "driver.h"

int main(void) {
    const size_t bytes = 1 << 20;
    unsigned *host = NULL, flags = 0, count = (unsigned)(bytes / 4), seed = 3, wrong = 0;
    if (posix_memalign((void **)&host, 4096, bytes) != 0)
        return 2;
    memset(host, 0, bytes);
    start();
    CUdeviceptr memory = allocate(bytes);
    OK(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE));
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(host, bytes, 0));
    OK(LAUNCH(kernel("fill"), count / 256, 256, NULL, &memory, &count, &seed));
    OK(cuMemcpyDtoHAsync(host, memory, bytes, NULL));
    OK(cuStreamSynchronize(NULL));
    for (unsigned i = 0; i < count; i++)
        wrong += host[i] != (i ^ seed) * 2654435761u;
    EXPECT(wrong == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(host + 1));
    OK(cuMemHostUnregister(host));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(NULL, bytes, 0));
    int read_only = -1;
    OK(cuDeviceGetAttribute(&read_only, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device));
    CUresult registered = cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_READ_ONLY);
    EXPECT(registered == (read_only ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED));
    if (registered == CUDA_SUCCESS)
        OK(cuMemHostUnregister(host));

    void *pinned;
    OK(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuMemHostGetFlags(&flags, pinned));
    EXPECT(flags & CU_MEMHOSTALLOC_PORTABLE);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(pinned));
    OK(cuMemFreeHost(pinned));
    free(host);
    return check_failed;
}
