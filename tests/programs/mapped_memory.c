// Host memory that is mapped for the device: the kernel takes the program's own pointer; what it writes is
// seen after a wait, what the program writes at the next launch. A handler for faults that the program has
// set still gets its own.
#include "driver.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { WORDS = 1 << 14 };

static sigjmp_buf back;

static void on_fault(int number) {
    (void)number;
    siglongjmp(back, 1);
}

int main(void) {
    unsigned *data, count = WORDS, factor = 2, term = 1, flags = 0, wrong = 0;
    unsigned plain[4] = {0};
    CUdeviceptr address = 0;
    CUmemorytype type = 0;
    void *host = NULL;
    CUstream stream;
    start();
    struct sigaction own = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &own, NULL);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&data, WORDS * sizeof *data, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&address, data, 0));
    EXPECT(address == (CUdeviceptr)data);
    OK(cuMemHostGetFlags(&flags, data));
    EXPECT(flags == CU_MEMHOSTALLOC_DEVICEMAP);
    OK(cuMemAllocHost(&host, 4096));
    OK(cuMemHostGetFlags(&flags, host)); // none was given
    EXPECT(flags == CU_MEMHOSTALLOC_DEVICEMAP);
    OK(cuMemFreeHost(host));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4));
    EXPECT(type == CU_MEMORYTYPE_HOST && host == data + 1);
    for (unsigned i = 0; i < WORDS; i++)
        data[i] = i;
    OK(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &data, &count, &factor, &term));
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++)
        wrong += data[i] != 2 * i + 1;
    EXPECT(wrong == 0);

    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (volatile int round = 0; round < 2; round++) {
        data[0] = 10;
        OK(LAUNCH(kernel("count_up"), 1, 1, stream, &data));
        OK(cuStreamSynchronize(stream));
        EXPECT(data[0] == 11 && data[1] == 3);
        volatile int caught = sigsetjmp(back, 1);
        if (!caught)
            *(volatile int *)nowhere = 1;
        EXPECT(caught == 1);
    }

    // One that is set now, before the next launch, is as good.
    own.sa_flags = SA_RESETHAND;
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &data));
    OK(cuStreamSynchronize(stream));
    EXPECT(sigaction(SIGSEGV, &own, NULL) == 0);
    EXPECT(data[0] == 12);
    volatile int again = sigsetjmp(back, 1);
    if (!again)
        *(volatile int *)nowhere = 1;
    EXPECT(again == 1 && signal(SIGSEGV, SIG_IGN) == SIG_DFL);
    EXPECT(raise(SIGSEGV) == 0 && signal(SIGSEGV, on_fault) == SIG_IGN);
    again = sigsetjmp(back, 1);
    if (!again)
        raise(SIGSEGV);
    EXPECT(again == 1);
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &data));
    OK(cuStreamSynchronize(stream));
    EXPECT(data[0] == 13);

    OK(cuMemcpyDtoH(plain, (CUdeviceptr)data, sizeof plain));
    EXPECT(plain[0] == 13 && plain[3] == 7);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree((CUdeviceptr)data));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(data + 1));
    OK(cuMemFreeHost(data));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(data));
    return check_failed;
}
