// Page-locked memory in kernels, however it came to be: allocated without a word of the device, under the
// program's own pointer; registered, by the pointer that CUDA gives for it.
#include <pthread.h>

#include "driver.h"

enum { WORDS = 1 << 14, BYTES = WORDS * 4, ASKING = 4 };

static CUstream stream;

static void launch(CUdeviceptr data) {
    unsigned count = WORDS, factor = 2, term = 1;
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &data, &count, &factor, &term));
    QUIET(cuStreamSynchronize(stream));
}

static int holds(const unsigned *data, unsigned factor, unsigned term) {
    for (unsigned i = 0; i < WORDS; i++)
        if (data[i] != i * factor + term)
            return 0;
    return 1;
}

static void begin(unsigned *data) {
    for (unsigned i = 0; i < WORDS; i++)
        data[i] = i;
}

static void used(unsigned *data, CUdeviceptr address) {
    unsigned plain[4] = {0}, type = 0;
    begin(data);
    launch(address);
    EXPECT(holds(data, 2, 1));
    data[0] = 5;
    launch(address);
    EXPECT(data[0] == 11 && data[1] == 7);
    data[0] = 1;
    EXPECT(holds(data, 4, 3) == 0);
    data[0] = 3;
    EXPECT(holds(data, 4, 3));
    OK(cuMemcpyDtoH(plain, address, sizeof plain));
    EXPECT(plain[1] == 7);
    OK(cuMemsetD32(address, 9, WORDS));
    OK(cuCtxSynchronize());
    EXPECT(holds(data, 0, 9));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    EXPECT(type == CU_MEMORYTYPE_HOST);
    void *host = NULL;
    OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4));
    EXPECT(host == data + 1);
    // The device has it mapped, but the program has not.
    CUmemGenericAllocationHandle handle;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    unsigned long long rights;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&rights, &here, address));
    const unsigned on = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
}

static pthread_barrier_t together;

// It is told in the place of what it asks about.
static void *asks(void *place) {
    CUdeviceptr *address = place;
    QUIET(cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    QUIET(cuMemHostGetDevicePointer(address, (void *)*address, 0));
    return NULL;
}

// Threads that ask for the device's address of registered memory at once are told the same one.
static void asked_at_once(unsigned *data) {
    pthread_t threads[ASKING];
    CUdeviceptr told[ASKING];
    int apart = 0;
    pthread_barrier_init(&together, NULL, ASKING);
    for (int round = 0; round < 20; round++) {
        QUIET(cuMemHostRegister(data, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
        for (int i = 0; i < ASKING; i++) {
            told[i] = (CUdeviceptr)data;
            pthread_create(&threads[i], NULL, asks, &told[i]);
        }
        for (int i = 0; i < ASKING; i++) {
            pthread_join(threads[i], NULL);
            apart += told[i] != told[0];
        }
        QUIET(cuMemHostUnregister(data));
    }
    EXPECT(apart == 0);
}

int main(void) {
    unsigned *data, *own = malloc(BYTES + 100);
    CUdeviceptr address = 0, memory, again = 0;
    start();
    memory = allocate(BYTES);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    begin(data);
    OK(cuMemcpyHtoD(memory, data, BYTES)); // before any kernel has it
    used(data, (CUdeviceptr)data);
    begin(data);
    OK(cuMemcpyHtoDAsync(memory, data, BYTES, stream));
    memset(data, 0, 16);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoHAsync(data, memory, BYTES, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(data[WORDS - 1] == WORDS - 1);
    OK(cuMemFreeHost(data));

    OK(cuMemAllocHost((void **)&data, BYTES));
    OK(cuMemcpyDtoD((CUdeviceptr)data, memory, BYTES)); // whatever a copy calls it
    OK(cuCtxSynchronize());
    EXPECT(data[WORDS - 1] == WORDS - 1);
    OK(cuMemHostGetDevicePointer(&address, data, 0));
    EXPECT(address == (CUdeviceptr)data);
    used(data, address);
    OK(cuMemFreeHost(data));

    data = (unsigned *)((char *)own + 20);
    OK(cuMemHostRegister(data, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&address, data, 0));
    OK(cuMemHostGetDevicePointer(&again, data + 3, 0));
    EXPECT(again == address + 12);
    used(data, address);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&again, data, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(NULL, data, 0));
    OK(cuMemHostUnregister(data));
    EXPECT(holds(data, 0, 9));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&again, data, 0));
    asked_at_once(data);
    free(own);
    return check_failed;
}
