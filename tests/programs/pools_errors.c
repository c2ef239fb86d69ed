// What pools refuse: wrong properties and attributes, devices that are not there, memory that is not theirs.
#include "pools.h"

static void wrong_pools(void) {
    CUmemPoolProps good = pool_of(device), wrong = good;
    CUmemoryPool pool = NULL, standard = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(NULL, &good));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, NULL));
    wrong.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &wrong));
    wrong.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    CALL(cuMemPoolCreate(&pool, &wrong)); // a device may have such pools, and those of the host
    CUmemLocation none = {CU_MEM_LOCATION_TYPE_NONE, {0}}, host = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    CALL(cuMemGetDefaultMemPool(&pool, &none, CU_MEM_ALLOCATION_TYPE_MANAGED));
    CALL(cuMemGetMemPool(&pool, &none, CU_MEM_ALLOCATION_TYPE_MANAGED));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetMemPool(&pool, &none, CU_MEM_ALLOCATION_TYPE_PINNED));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetMemPool(&pool, &none, CU_MEM_ALLOCATION_TYPE_INVALID));
    wrong = good;
    wrong.location = host;
    CALL(cuMemPoolCreate(&pool, &wrong));
    wrong = good;
    wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &wrong));
    wrong = pool_of(1000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &wrong));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(NULL));
    OK(cuDeviceGetDefaultMemPool(&standard, device));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(standard));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDefaultMemPool(&pool, 1000));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetDefaultMemPool(NULL, device));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetMemPool(&pool, 1000));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetMemPool(NULL, device));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(1000, standard));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(device, NULL));
    CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, {1000}}; // the same by another name
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetMemPool(&nowhere, CU_MEM_ALLOCATION_TYPE_PINNED, standard));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
}

static void wrong_attributes(void) {
    CUmemoryPool pool = new_pool(0);
    uint64_t one = 1, value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_LOCATION_ID, &one));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, (CUmemPool_attribute)99, &one));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(NULL, 0));
    OK(cuMemPoolTrimTo(pool, 1 << 30)); // it has less: nothing to do
    OK(cuMemPoolDestroy(pool));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(pool, 0));
}

static void wrong_access(void) {
    CUmemoryPool pool = new_pool(0);
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                  nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, {1000}},
                  invalid = {CU_MEM_LOCATION_TYPE_INVALID, {device}};
    CUmemAccessDesc kept_out = {here, CU_MEM_ACCESS_FLAGS_PROT_NONE}, unknown = {here, (CUmemAccess_flags)5},
                    absent = {nowhere, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &kept_out, 1)); // its own device
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(pool, &unknown, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &absent, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(pool, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAccess(NULL, pool, &here));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAccess(&flags, pool, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAccess(&flags, pool, &nowhere));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAccess(&flags, pool, &invalid));
    OK(cuMemPoolDestroy(pool));
}

static void wrong_memory(void) {
    CUmemoryPool pool = new_pool(0);
    CUstream none = (CUstream)(uintptr_t)-1;
    CUdeviceptr address = 0, plain = allocate(MIB2);
    unsigned value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, MIB2, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemAllocAsync(&address, MIB2, none));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&address, SIZE_MAX, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(NULL, MIB2, pool, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&address, MIB2, NULL, NULL));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&address, SIZE_MAX, pool, NULL));
    address = 1; // no bytes are nothing, which may be freed, other than with cuMemAlloc
    OK(cuMemAllocAsync(&address, 0, NULL));
    EXPECT(address == 0);
    OK(cuMemFreeAsync(address, NULL));
    address = 1;
    OK(cuMemAllocFromPoolAsync(&address, 0, pool, NULL));
    EXPECT(address == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemAllocAsync(&address, 0, none));
    OK(cuMemFreeAsync(plain, NULL)); // memory of cuMemAlloc ends in stream order too, once
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(plain, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(plain));
    address = take(pool, MIB2, NULL);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemFreeAsync(address, none));
    OK(cuMemsetD32Async(address, 11, MIB2 / 4, NULL));
    OK(cuMemcpyDtoH(&value, address + MIB2 - 4, 4));
    EXPECT(value == 11);
    OK(cuMemFreeAsync(address, NULL));
    OK(cuCtxSynchronize());
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, address, 4));
    OK(cuMemPoolDestroy(pool));
}

// A stream knows its device: only the default one is the current context's.
static void no_context(void) {
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr first = 0, second = 0;
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&first, MIB2, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocFromPoolAsync(&first, MIB2, pool, NULL));
    OK(cuMemAllocAsync(&first, MIB2, stream));
    OK(cuMemAllocFromPoolAsync(&second, MIB2, pool, stream));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemFreeAsync(first, NULL));
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemFreeAsync(second, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSetCurrent(context));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(first, 0, 1));
    OK(cuStreamDestroy(stream));
    OK(cuMemPoolDestroy(pool));
}

int main(void) {
    start();
    wrong_pools();
    wrong_attributes();
    wrong_access();
    wrong_memory();
    no_context();
    return check_failed;
}
