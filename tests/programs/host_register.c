// The program's own memory page-locked and used in asynchronous copies; flags and errors of registration.
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

// What is filled by the device's pointer is there when that is done, and stays.
static void filled(unsigned *host, size_t bytes, unsigned count) {
    CUdeviceptr mapped;
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&mapped, host, 0));
    host[0] = host[count - 1] = 1;
    OK(cuMemsetD32Async(mapped, 7, count, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(host[0] == 7 && host[count - 1] == 7);
    host[0] = 2;
    OK(cuMemsetD32(mapped, 8, 1));
    OK(cuMemsetD32(mapped + 4, 9, 1));
    OK(cuCtxSynchronize());
    EXPECT(host[0] == 8 && host[1] == 9 && host[2] == 7);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(mapped)); // it is not allocated
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(mapped, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, mapped));
    OK(cuMemsetD32(mapped, 6, 1));
    OK(cuCtxSynchronize());
    EXPECT(host[0] == 6);
    OK(cuMemHostUnregister(host));
    OK(cuStreamDestroy(stream));
}

// Programs free memory that kernels reached before they register it no more.
static void unmapped(void) {
    const size_t size = 8192;
    unsigned value = 5;
    CUdeviceptr seen = 0;
    CUstream stream;
    unsigned *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostRegister(memory, size, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, memory, 0));
    OK(LAUNCH(kernel("store"), 1, 1, stream, &seen, &value));
    OK(cuStreamSynchronize(stream));
    EXPECT(memory[0] == 5);
    munmap(memory + 1024, size / 2);
    OK(LAUNCH(kernel("store"), 1, 1, stream, &seen, &value));
    OK(cuStreamSynchronize(stream));
    OK(cuMemHostUnregister(memory));
    munmap(memory, size / 2);
}

// What was registered piece by piece, side by side, is copied as one.
static void side_by_side(void) {
    const size_t half = 8192;
    unsigned *memory = aligned_alloc(4096, 2 * half), words = (unsigned)(half / 2), value = 9;
    CUdeviceptr there = allocate(2 * half);
    OK(cuMemHostRegister(memory, half, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostRegister((char *)memory + half, half, 0));
    OK(cuMemsetD32(there, 6, words));
    OK(cuMemcpyDtoHAsync(memory, there, 2 * half, NULL));
    OK(cuStreamSynchronize(NULL));
    EXPECT(memory[0] == 6 && memory[words - 1] == 6);
    memory[words / 2] = 7;
    OK(cuMemcpyHtoD(there, memory, 2 * half));
    OK(cuMemcpyDtoH(&value, there + half, 4));
    EXPECT(value == 7);
    OK(cuMemcpyDtoD(there, (CUdeviceptr)memory + half - 4, 8));
    OK(cuMemcpyDtoH(&value, there + 4, 4));
    EXPECT(value == 7);
    OK(cuMemHostUnregister((char *)memory + half));
    OK(cuMemHostUnregister(memory));
    OK(cuMemFree(there));
    free(memory);
}

// What may not be read anywhere in it cannot be page-locked.
static void out_of_reach(void) {
    const size_t page = 4096, size = 8 * page;
    char *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(memory, size, 0));
    mprotect(memory, size, PROT_READ | PROT_WRITE);
    mprotect(memory + 3 * page, page, PROT_NONE);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(memory, size, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostRegister(memory, 3 * page, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostUnregister(memory));
    munmap(memory, size);
}

int main(void) {
    const size_t bytes = 1 << 20;
    unsigned *host = NULL, flags = 0, count = (unsigned)(bytes / 4), seed = 3, wrong = 0;
    if (posix_memalign((void **)&host, 4096, bytes) != 0)
        return 2;
    memset(host, 0, bytes);
    start();
    CUdeviceptr memory = allocate(bytes);
    filled(host, bytes, count);
    OK(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE));
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(host, bytes, 0));
    OK(LAUNCH(kernel("fill"), count / 256, 256, NULL, &memory, &count, &seed));
    OK(cuMemcpyDtoHAsync(host, memory, bytes, NULL));
    OK(cuStreamSynchronize(NULL));
    for (unsigned i = 0; i < count; i++)
        wrong += host[i] != (i ^ seed) * 2654435761u;
    EXPECT(wrong == 0);
    // What a call names as the device's is registered as a whole, or is not the device's.
    CUdeviceptr end = (CUdeviceptr)host + bytes;
    OK(cuMemHostUnregister(host));
    OK(cuMemHostRegister(host, bytes - 4, CU_MEMHOSTREGISTER_PORTABLE));
    OK(cuMemcpyDtoD(end - 12, memory, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(end - 8, memory, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(end - 8, host, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, end - 8, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(memory, end - 8, 8, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(end - 8, 0, 2));
    OK(cuMemcpy(end - 8, memory, 8)); // by its address alone it is the program's
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(host + 1));
    OK(cuMemHostGetFlags(&flags, host));
    EXPECT(flags == (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
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
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(pinned, (size_t)1 << 62, 0)); // told at once
    OK(cuMemFreeHost(pinned));
    free(host);
    unmapped();
    side_by_side();
    out_of_reach();
    return check_failed;
}
