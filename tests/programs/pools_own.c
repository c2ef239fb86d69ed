// Pools of the program's own: what they account, trims, a largest size, a pool that is the device's current
// one, one that is destroyed while its memory is in use.
#include "pools.h"

static CUstream stream;

static void accounts(void) {
    CUmemoryPool pool = new_pool(0), other = new_pool(0);
    uint64_t zero = 0, threshold = 64u << 20;
    CUdeviceptr first = take(pool, 2 * MIB2, stream), second = take(pool, 3 * MIB2, stream);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5 * MIB2);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 5 * MIB2);
    EXPECT(amount(other, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuMemFreeAsync(first, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 * MIB2);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 5 * MIB2);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 5 * MIB2);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) <= 3 * MIB2);
    first = take(pool, MIB2 / 2, stream); // counted as it was asked for, whatever it takes
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 3 * MIB2 + MIB2 / 2);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 3 * MIB2 + MIB2 / 2);
    CUdeviceptr few = take(pool, 1024, stream); // no pages of them, as CuPy's tests have it
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 * MIB2 + MIB2 / 2 + 1024);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) % MIB2 ==
           0); // of granules, as they have it too
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) % MIB2 == 0);
    OK(cuMemFreeAsync(few, stream));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 * MIB2 + MIB2 / 2);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold);
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemFreeAsync(second, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuMemPoolTrimTo(pool, 0));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(cuMemPoolDestroy(pool));
    OK(cuMemPoolDestroy(other));
}

static size_t free_now(void) {
    size_t left = 0, all;
    QUIET(cuMemGetInfo(&left, &all));
    return left;
}

// What a pool keeps is not free, until it is trimmed, and no more than the threshold behind a wait.
static void keeps(void) {
    CUmemoryPool pool = new_pool(0);
    uint64_t all = UINT64_MAX, some = 2 * MIB2;
    size_t before = free_now();
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    CUdeviceptr addresses[4];
    for (int i = 0; i < 4; i++) {
        addresses[i] = take(pool, 2 * MIB2, stream);
    }
    for (int i = 0; i < 4; i++) {
        OK(cuMemFreeAsync(addresses[i], stream));
    }
    OK(cuStreamSynchronize(stream));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    size_t kept = free_now();
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 * MIB2);
    EXPECT(kept <= before - 8 * MIB2);
    OK(cuMemPoolTrimTo(pool, 4 * MIB2));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB2);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &some));
    OK(cuMemFreeAsync(take(pool, 2 * MIB2, stream), stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= some);
    OK(cuMemPoolTrimTo(pool, 0));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    EXPECT(free_now() >= kept + 8 * MIB2);
    OK(cuMemPoolDestroy(pool));
}

// A pool is its device's: what was taken in a context that ends is there until it is freed.
static void outlives_its_context(void) {
    CUcontext own;
    CUstream there;
    CUdeviceptr memory;
    unsigned value = 0;
    size_t before = free_now();
    OK(cuCtxCreate(&own, NULL, 0, device));
    OK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&memory, 2 * MIB2, there));
    OK(cuMemsetD32Async(memory, 7, 1, there));
    OK(cuStreamSynchronize(there));
    OK(cuCtxDestroy(own));
    OK(cuCtxSetCurrent(context));
    OK(cuMemcpyDtoH(&value, memory, 4));
    EXPECT(value == 7 && free_now() < before);
    OK(cuMemFreeAsync(memory, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(free_now() == before);
}

static void properties(void) {
    CUmemoryPool pool = new_pool(0);
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CUmemAccessDesc open = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    int off = 0;
    EXPECT(number(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) == 1);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) == 1);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) == 1);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_ALLOCATION_TYPE) == CU_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES) == CU_MEM_HANDLE_TYPE_NONE);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_LOCATION_ID) == device);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_LOCATION_TYPE) == CU_MEM_LOCATION_TYPE_DEVICE);
    EXPECT(number(pool, CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID) == -1);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
    EXPECT(number(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) == 0);
    OK(cuMemPoolGetAccess(&flags, pool, &here));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemPoolSetAccess(pool, &open, 1));
    CUdeviceptr address = take(pool, MIB2, stream);
    CUmemoryPool owner = NULL;
    CUcontext none = context;
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    EXPECT(owner == pool);
    OK(cuPointerGetAttribute(&none, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    EXPECT(none == NULL);
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
}

static void largest(void) {
    CUmemoryPool pool = new_pool(8 * MIB2);
    uint64_t most = amount(pool, CU_MEMPOOL_ATTR_MAX_POOL_SIZE);
    CUdeviceptr more = 0;
    EXPECT(most >= 8 * MIB2);
    CUdeviceptr all = take(pool, most, stream);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&more, MIB2, pool, stream));
    OK(cuMemFreeAsync(all, stream));
    OK(cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&more, most + MIB2, pool, stream));
    OK(cuMemAllocFromPoolAsync(&more, MIB2, pool, stream));
    OK(cuMemFreeAsync(more, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
}

// cuMemAllocAsync takes from the current pool, also in the middle of work on both.
static void current(void) {
    CUmemoryPool pool = new_pool(0), standard = NULL, now = NULL;
    CUdeviceptr address = 0;
    unsigned words = MIB2 / 4, factor = 5, term = 3, value = 0;
    OK(cuDeviceGetDefaultMemPool(&standard, device));
    OK(cuDeviceGetMemPool(&now, device));
    EXPECT(now == standard);
    uint64_t before = amount(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    OK(cuDeviceSetMemPool(device, pool));
    OK(cuDeviceGetMemPool(&now, device));
    EXPECT(now == pool);
    OK(cuMemAllocAsync(&address, MIB2, stream));
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB2);
    EXPECT(amount(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == before);
    OK(cuMemsetD32Async(address, 7, words, stream));
    OK(cuMemPoolDestroy(pool)); // with memory in use: that lives on, the default pool is current
    OK(cuDeviceGetMemPool(&now, device));
    EXPECT(now == standard);
    OK(LAUNCH(kernel("affine"), words / 256, 256, stream, &address, &words, &factor, &term));
    OK(cuMemcpyDtoHAsync(&value, address + MIB2 - 4, 4, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(value == 38);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&address, MIB2, pool, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

// Memory of one pool that goes round: nothing of the rounds before is lost or mixed up.
static void rounds(void) {
    CUmemoryPool pool = new_pool(0);
    uint64_t all = UINT64_MAX;
    unsigned words = MIB2 / 4, factor = 3, sum = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    for (unsigned i = 0; i < 40; i++) {
        CUdeviceptr one = take(pool, MIB2, stream), two = take(pool, 2 * MIB2, stream);
        unsigned value = 0;
        QUIET(cuMemsetD32Async(one, i, words, stream));
        QUIET(cuMemsetD32Async(two, 1000 + i, 2 * words, stream));
        QUIET(LAUNCH(kernel("affine"), words / 256, 256, stream, &one, &words, &factor, &i));
        QUIET(cuMemcpyDtoDAsync(two + MIB2, one, 4, stream));
        QUIET(cuMemFreeAsync(one, stream));
        QUIET(cuMemcpyDtoHAsync(&value, two + MIB2, 4, stream));
        QUIET(cuMemFreeAsync(two, stream));
        QUIET(cuStreamSynchronize(stream));
        sum += value == 4 * i;
    }
    EXPECT(sum == 40);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    EXPECT(amount(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 3 * MIB2);
    OK(cuMemPoolDestroy(pool));
}

int main(void) {
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    accounts();
    keeps();
    outlives_its_context();
    properties();
    largest();
    current();
    rounds();
    return check_failed;
}
