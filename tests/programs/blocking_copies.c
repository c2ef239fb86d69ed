// Blocking copies "within the device" whose addresses say otherwise are done when they return, as are all
// blocking operations on memory for which the program asked that (SYNC_MEMOPS): it looks at once.
#include "driver.h"

enum { WORDS = 64, BYTES = 4 * WORDS };

static CUdeviceptr idle, busy;

// What follows is not done at once.
static void keep_busy(void) {
    unsigned count = WORDS, delay = 1000000;
    QUIET(LAUNCH(kernel("slow_copy"), 1, 64, NULL, &busy, &idle, &count, &delay));
}

// Asynchronous operations on such memory are as asynchronous as on any other.
static void asynchronous(CUdeviceptr memory, CUdeviceptr source, unsigned *page_locked) {
    CUdeviceptr gate = allocate(4);
    CUstream gated, other;
    OK(cuStreamCreate(&gated, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32(gate, 0, 1));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamWaitValue32(gated, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoDAsync(memory, source, BYTES, gated));
    OK(cuMemcpyHtoDAsync(memory, page_locked, BYTES, gated));
    OK(cuMemsetD32Async(memory, 8, WORDS, gated));
    OK(cuMemcpyDtoHAsync(page_locked, memory, BYTES, gated));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(gated));
    OK(cuStreamWriteValue32(other, gate, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(cuStreamSynchronize(gated));
    EXPECT(page_locked[WORDS - 1] == 8);
    OK(cuStreamDestroy(other));
    OK(cuStreamDestroy(gated));
}

int main(void) {
    const unsigned on = 1;
    unsigned *page_locked = NULL, *registered = calloc(WORDS, 4);
    CUdeviceptr source, synchronous, managed;
    start();
    OK(cuMemHostAlloc((void **)&page_locked, BYTES, 0));
    OK(cuMemHostRegister(registered, BYTES, 0));
    OK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    idle = allocate(BYTES);
    busy = allocate(BYTES);
    source = allocate(BYTES);
    synchronous = allocate(BYTES);
    OK(cuMemsetD32(source, 5, WORDS));
    OK(cuCtxSynchronize());

    keep_busy();
    OK(cuMemcpyDtoD((CUdeviceptr)page_locked, source, BYTES));
    EXPECT(page_locked[WORDS - 1] == 5);
    keep_busy();
    OK(cuMemcpyDtoD((CUdeviceptr)registered, source, BYTES));
    EXPECT(registered[WORDS - 1] == 5);
    keep_busy();
    OK(cuMemcpyDtoD(managed, source, BYTES));
    EXPECT(((unsigned *)managed)[WORDS - 1] == 5);

    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, synchronous));
    keep_busy();
    OK(cuMemcpyDtoD(synchronous, source, BYTES));
    OK(cuStreamQuery(NULL));
    keep_busy();
    OK(cuMemcpyHtoD(synchronous, registered, BYTES));
    OK(cuStreamQuery(NULL));
    keep_busy();
    OK(cuMemsetD32(synchronous, 6, WORDS));
    OK(cuStreamQuery(NULL));
    CUdeviceptr variable;
    unsigned is = 0;
    OK(cuModuleGetGlobal(&variable, NULL, module, "global_words"));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, variable + 4));
    OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, variable));
    EXPECT(is == 1);
    keep_busy();
    OK(cuMemsetD32(variable, 6, 1));
    OK(cuStreamQuery(NULL));
    asynchronous(synchronous, source, page_locked);
    // In a context for which the program asked it, all of them are.
    CUarray array;
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){WORDS, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
    keep_busy();
    OK(cuMemcpyDtoD(idle, source, BYTES));
    OK(cuStreamQuery(NULL));
    keep_busy();
    OK(cuMemsetD32(source, 6, WORDS));
    OK(cuStreamQuery(NULL));
    keep_busy();
    OK(cuMemcpyDtoA(array, 0, source, BYTES));
    OK(cuStreamQuery(NULL));
    OK(cuCtxSetFlags(0));
    OK(cuMemHostUnregister(registered));
    free(registered);
    return check_failed;
}
