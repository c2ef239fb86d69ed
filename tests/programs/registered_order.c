// Copies from and to registered memory that kernels reach too are in their stream's order with those kernels,
// without a wait of the program's in between.
#include "driver.h"

enum { WORDS = 4096, BYTES = 4 * WORDS };

static unsigned count = WORDS;

static unsigned *registered(CUdeviceptr *seen) {
    unsigned *memory = aligned_alloc(4096, BYTES);
    memset(memory, 0, BYTES);
    QUIET(cuMemHostRegister(memory, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    if (seen)
        QUIET(cuMemHostGetDevicePointer(seen, memory, 0));
    return memory;
}

static bool all(const unsigned *memory, unsigned value) {
    unsigned i = 0;
    while (i < WORDS && memory[i] == value)
        i++;
    return i == WORDS;
}

static void end(unsigned *memory) {
    QUIET(cuMemHostUnregister(memory));
    free(memory);
}

static CUresult twice_and_one(CUdeviceptr memory, CUstream stream) {
    unsigned factor = 2, term = 1;
    return LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &memory, &count, &factor, &term);
}

static void copies(CUstream stream) {
    unsigned *result;
    CUdeviceptr seen, memory = allocate(BYTES);
    unsigned *host = registered(&seen);
    OK(cuMemHostAlloc((void **)&result, BYTES, 0));
    // what a kernel wrote is copied in
    OK(cuMemsetD32Async(seen, 7, WORDS, stream));
    OK(twice_and_one(seen, stream));
    OK(cuMemcpyHtoDAsync(memory, host, BYTES, stream));
    OK(cuMemcpyDtoHAsync(result, memory, BYTES, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(all(result, 15) && all(host, 15));
    // what was copied out a kernel reads
    OK(cuMemsetD32Async(memory, 20, WORDS, stream));
    OK(cuMemcpyDtoHAsync(host, memory, BYTES, stream));
    OK(twice_and_one(seen, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(all(host, 41));
    // and what the program wrote in between is copied
    host[1] = 5;
    OK(cuMemcpyHtoDAsync(memory, host, BYTES, stream));
    OK(cuMemcpyDtoHAsync(result, memory, BYTES, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(result[0] == 41 && result[1] == 5 && result[2] == 41);
    OK(cuMemcpyDtoH(host, memory, 4));
    host[0] = 6;
    OK(cuMemcpyHtoD(memory, host, BYTES));
    OK(cuMemcpyDtoH(result, memory, BYTES));
    EXPECT(result[0] == 6 && result[1] == 5 && result[WORDS - 1] == 41);
    end(host);
    OK(cuMemFreeHost(result));
}

// The device has it from when the program asks where, behind a copy that is still to come.
static void asked_late(CUstream stream) {
    CUdeviceptr seen, source = allocate(BYTES), memory = allocate(BYTES);
    unsigned *host = registered(NULL), delay = 200000;
    OK(cuMemsetD32Async(source, 30, WORDS, stream));
    OK(LAUNCH(kernel("slow_copy"), 1, 64, stream, &memory, &source, &count, &delay));
    OK(cuMemcpyDtoHAsync(host, memory, BYTES, stream));
    OK(cuMemHostGetDevicePointer(&seen, host, 0));
    OK(twice_and_one(seen, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(all(host, 61));
    end(host);
}

static void arrays(CUstream stream) {
    CUarray array;
    CUdeviceptr seen;
    unsigned *host = registered(&seen);
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){WORDS, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuMemsetD32Async(seen, 7, WORDS, stream));
    OK(cuMemcpyHtoAAsync(array, 0, host, BYTES, stream));
    OK(cuMemsetD32Async(seen, 8, WORDS, stream));
    OK(cuMemcpyAtoHAsync(host, array, 0, BYTES, stream));
    OK(twice_and_one(seen, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(all(host, 15));
    OK(cuArrayDestroy(array));
    end(host);
}

int main(void) {
    CUstream stream;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    copies(stream);
    asked_late(stream);
    arrays(stream);
    return check_failed;
}
