// Addresses are reserved beside memory that a stream freed while another one waited for the program: nothing
// is left behind them. And memory is mapped where other memory was unmapped behind work, while a stream waits
// for the program.
#include <stdatomic.h>

#include "vmm.h"

static atomic_int opened;

static void CUDA_CB until_opened(void *unused) {
    (void)unused;
    while (!atomic_load(&opened)) {
    }
}

static void CUDA_CB count(void *called) {
    ++*(unsigned *)called;
}

static void map_again(CUstream stream) {
    enum { WORDS = 64 };
    unsigned words = WORDS, delay = 1000000, called = 0;
    CUdeviceptr from = allocate(4 * WORDS), to = allocate(4 * WORDS), base = reserve(granule);
    CUmemGenericAllocationHandle handle = create(granule);
    for (unsigned i = 0; i < 3; i++) {
        map(base, granule, handle);
        allow(base, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        store_at(base, i);
        EXPECT(word_at(base) == i);
        OK(LAUNCH(kernel("slow_copy"), 1, WORDS, NULL, &to, &from, &words, &delay));
        OK(cuMemUnmap(base, granule));
        OK(cuLaunchHostFunc(stream, count, &called));
    }
    OK(cuStreamSynchronize(stream));
    EXPECT(called == 3);
    OK(cuMemRelease(handle));
}

int main(void) {
    CUstream gated, other;
    CUdeviceptr large = 0, small = 0;
    start_vmm();
    OK(cuStreamCreate(&gated, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&large, 10 * granule, other));
    OK(cuStreamSynchronize(other));
    OK(cuLaunchHostFunc(gated, until_opened, NULL));
    OK(cuMemFreeAsync(large, other));
    OK(cuMemAllocAsync(&small, granule, other)); // in place of a part
    atomic_store(&opened, 1);
    OK(cuStreamSynchronize(gated));
    OK(cuMemsetD32Async(small, 3, 4, other));
    for (unsigned i = 0; i < 3; i++) {
        CUdeviceptr base = reserve(2 * granule);
        CUmemGenericAllocationHandle handle = create(2 * granule);
        map(base, 2 * granule, handle);
        allow(base, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        store_at(base + 2 * granule - 4, 40 + i);
        EXPECT(word_at(base + 2 * granule - 4) == 40 + i);
        OK(cuMemRelease(handle));
    }
    OK(cuStreamSynchronize(other));
    EXPECT(word_at(small) == 3);
    OK(cuMemFreeAsync(small, other));
    OK(cuStreamSynchronize(other));
    map_again(other);
    return check_failed;
}
