// Device memory that another process opens by its IPC handle: both see what each writes, an allocation is
// opened as a whole wherever in it the handle was asked for, opens are counted, and what is no handle, or
// not any more, is refused with CUDA's errors.
#include "driver.h"

#include "processes.h"

enum { WORDS = 3 << 18, SMALL = 1000, LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };

struct handles {
    CUipcMemHandle large, small, freed, ended;
};

static unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    QUIET(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

static void importer(void) {
    struct handles handles;
    CUdeviceptr large = 0, again = 0, small = 0, own = allocate(WORDS * 4), base = 0;
    CUipcMemHandle handle;
    const unsigned on = 1;
    unsigned synchronous = 0;
    size_t size = 0;
    hear(&handles, sizeof handles);

    OK(cuIpcOpenMemHandle(&large, handles.large, LAZY));
    OK(cuMemGetAddressRange(&base, &size, large + 100));
    EXPECT(base == large && size == WORDS * 4);
    EXPECT(word_at(large) == 7 && word_at(large + 4 * (WORDS - 1)) == 7);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &large));
    OK(cuMemcpyDtoD(own, large, WORDS * 4));
    EXPECT(word_at(own) == 8 && word_at(own + 4) == 7);
    OK(cuIpcOpenMemHandle(&small, handles.small, LAZY));
    EXPECT(word_at(small) == 11 && word_at(small + 4 * (SMALL / 4 - 1)) == 11);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small));
    OK(cuPointerGetAttribute(&synchronous, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small + SMALL - 1));
    EXPECT(synchronous == 1);
    go();
    await();
    EXPECT(word_at(large) == 9);
    OK(cuMemsetD32(large, 21, WORDS));
    OK(cuCtxSynchronize());

    OK(cuIpcOpenMemHandle(&again, handles.large, LAZY));
    EXPECT(again == large);
    OK(cuIpcCloseMemHandle(again));
    EXPECT(word_at(large) == 21);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(large));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, large));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(large + 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(own));
    OK(cuIpcCloseMemHandle(large));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(large));
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, large));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(large, 0, 1));
    OK(cuIpcOpenMemHandle(&large, handles.large, LAZY));
    EXPECT(word_at(large) == 21);

    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(NULL, handles.small, LAZY));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handles.small, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handles.small, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handles.freed, LAZY));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handles.ended, LAZY));
    memset(&handle, 0, sizeof handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handle, LAZY));
    memset(&handle, 0xa5, sizeof handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handle, LAZY));
    handle = handles.small;
    handle.reserved[24] ^= 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, handle, LAZY));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(0));
    OK(cuMemFree(own));
    go();
}

int main(int count, char **arguments) {
    const char *role = role_of(count, arguments);
    start();
    if (strcmp(role, "importer") == 0) {
        importer();
        return check_failed; // what is open ends with the process
    }
    // what is small does not begin where its pages do
    CUdeviceptr large = allocate(WORDS * 4), freed = allocate(SMALL), small = allocate(SMALL), none = 0;
    struct handles handles;
    OK(cuMemsetD32(large, 7, WORDS));
    if (strcmp(role, "ends") == 0) {
        OK(cuIpcGetMemHandle(&handles.ended, large));
        tell(&handles.ended, sizeof handles.ended);
        return check_failed;
    }
    pid_t child = spawn(arguments[0], "ends");
    hear(&handles.ended, sizeof handles.ended);
    EXPECT(ended_well(child));

    OK(cuMemsetD32(small, 11, SMALL / 4));
    OK(cuIpcGetMemHandle(&handles.large, large));
    OK(cuIpcGetMemHandle(&handles.small, small + 16));
    OK(cuIpcGetMemHandle(&handles.freed, freed));
    EXPECT(word_at(large) == 7 && word_at(small) == 11);
    CUipcMemHandle same, unused;
    OK(cuIpcGetMemHandle(&same, large + 4096));
    EXPECT(memcmp(&same, &handles.large, sizeof same) == 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&none, handles.large, LAZY));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(large));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, large));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&unused, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&unused, (CUdeviceptr)(uintptr_t)&none));
    CUdeviceptr managed;
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&unused, managed));
    OK(cuMemFree(freed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&unused, freed));

    child = spawn(arguments[0], "importer");
    tell(&handles, sizeof handles);
    await();
    EXPECT(word_at(large) == 8 && word_at(large + 4) == 7);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &large));
    OK(cuCtxSynchronize());
    go();
    await();
    EXPECT(word_at(large) == 21 && word_at(large + 4 * (WORDS - 1)) == 21);
    EXPECT(ended_well(child));
    EXPECT(word_at(large) == 21);
    OK(cuMemFree(large));
    OK(cuMemFree(small));
    return check_failed;
}
