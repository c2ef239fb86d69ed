// Memory pools that another process opens by a descriptor, and allocations in them by what names each: both
// see what each writes, memory is freed in stream order on either side, and what is not of that pool is
// refused.
#include "driver.h"

#include "processes.h"

enum { WORDS = 1 << 12 };

static const CUmemAllocationHandleType FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct offers {
    CUmemPoolPtrExportData first, second, foreign, freed;
};

static unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    QUIET(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

static CUmemoryPool new_pool(CUmemAllocationHandleType type) {
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = type,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    QUIET(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static CUdeviceptr allocate_in(CUmemoryPool pool, unsigned value) {
    CUdeviceptr address = 0;
    QUIET(cuMemAllocFromPoolAsync(&address, WORDS * 4, pool, NULL));
    QUIET(cuMemsetD32Async(address, value, WORDS, NULL));
    QUIET(cuStreamSynchronize(NULL));
    unsigned long long types = 99;
    CUmemAllocationHandleType of_pool = CU_MEM_HANDLE_TYPE_NONE;
    QUIET(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    QUIET(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES, &of_pool));
    EXPECT(types == of_pool);
    return address;
}

static void importer(void) {
    struct offers offers;
    CUmemoryPool pool = NULL, own = new_pool(FD);
    CUdeviceptr first = 0, again = 0, second = 0, none = 0;
    hear(&offers, sizeof offers);
    int descriptor = hear_descriptor(), wrong[2];
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor, FD, 0));
    close(descriptor);
    CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES, &type));
    EXPECT(type == FD);

    // An imported pool gives nothing.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&none, 4, pool, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(device, pool));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&descriptor, pool, FD, 0));

    OK(cuCtxSetCurrent(NULL)); // a pool's memory is of no context
    OK(cuMemPoolImportPointer(&first, pool, &offers.first));
    OK(cuCtxSetCurrent(context));
    EXPECT(word_at(first) == 7 && word_at(first + 4 * (WORDS - 1)) == 7);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &first));
    OK(cuCtxSynchronize());
    go();
    await();
    EXPECT(word_at(first) == 9);
    OK(cuMemPoolImportPointer(&second, pool, &offers.second));
    EXPECT(word_at(second) == 11);
    OK(cuMemPoolImportPointer(&again, pool, &offers.first));
    EXPECT(again == first);
    OK(cuMemFreeAsync(again, NULL));
    EXPECT(word_at(first) == 9);

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, own, &offers.first));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &offers.foreign));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &offers.freed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, NULL));
    memset(&offers.freed, 0xa5, sizeof offers.freed);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &offers.freed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(first));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&offers.freed, first));
    if (pipe(wrong) != 0)
        exit(96);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolImportFromShareableHandle(&own, (void *)(intptr_t)wrong[0], FD, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportFromShareableHandle(&own, (void *)(intptr_t)-1, FD, 0));

    OK(cuMemFreeAsync(first, NULL));
    OK(cuStreamSynchronize(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(first, 0, 1));
    OK(cuMemFree(second));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(second));
    OK(cuMemPoolDestroy(pool));
    go();
}

int main(int count, char **arguments) {
    const char *role = role_of(count, arguments);
    start();
    int supported = 0, descriptor = -1;
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device));
    EXPECT((supported & FD) != 0);
    if (strcmp(role, "importer") == 0) {
        importer();
        return check_failed;
    }
    CUmemoryPool shared = new_pool(FD), foreign = new_pool(FD), closed = new_pool(CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr first = allocate_in(shared, 7), second = allocate_in(shared, 11),
                other = allocate_in(foreign, 3), freed = allocate_in(shared, 5),
                private = allocate_in(closed, 1);
    struct offers offers;
    OK(cuMemPoolExportToShareableHandle(&descriptor, shared, FD, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(NULL, shared, FD, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&descriptor, shared, FD, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&descriptor, closed, FD, 0));
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemPoolExportPointer(&offers.first, first));
    OK(cuCtxSetCurrent(context));
    OK(cuMemPoolExportPointer(&offers.second, second + 16));
    OK(cuMemPoolExportPointer(&offers.foreign, other));
    OK(cuMemPoolExportPointer(&offers.freed, freed));
    CUmemPoolPtrExportData unused;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&unused, private));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&unused, allocate(4)));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&unused, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(NULL, first));
    CUmemoryPool mine = NULL;
    CUdeviceptr none = 0;
    OK(cuMemPoolImportFromShareableHandle(&mine, (void *)(intptr_t)descriptor, FD, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemPoolImportPointer(&none, mine, &offers.first));
    OK(cuMemPoolDestroy(mine));
    OK(cuMemFreeAsync(freed, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolTrimTo(shared, 0));

    pid_t child = spawn(arguments[0], "importer");
    tell(&offers, sizeof offers);
    tell_descriptor(descriptor);
    close(descriptor);
    await();
    EXPECT(word_at(first) == 8 && word_at(first + 4) == 7);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &first));
    OK(cuCtxSynchronize());
    go();
    await();
    EXPECT(ended_well(child));
    EXPECT(word_at(first) == 9);
    OK(cuMemFreeAsync(first, NULL));
    OK(cuMemFreeAsync(second, NULL));
    CUdeviceptr reused = allocate_in(shared, 13);
    EXPECT(word_at(reused) == 13);
    OK(cuMemFreeAsync(reused, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolDestroy(shared));
    OK(cuMemPoolDestroy(foreign));
    OK(cuMemPoolDestroy(closed));
    return check_failed;
}
