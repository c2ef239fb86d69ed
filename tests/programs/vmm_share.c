// Physical memory that another process maps by a file descriptor: the descriptor is the program's, to be
// sent, copied and closed; both see what each writes; and CUDA's errors for what is no such descriptor.
#include <fcntl.h>

#include "driver.h"

#include "processes.h"

#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

enum { SIZE = 4 << 20 };

static CUmemAllocationProp of_type(CUmemAllocationHandleType type) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle memory) {
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, SIZE, 0, 0, 0));
    OK(cuMemMap(address, SIZE, 0, memory, 0));
    OK(cuMemSetAccess(address, SIZE, &access, 1));
    return address;
}

static unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    QUIET(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

static void *told(int descriptor) {
    return (void *)(intptr_t)descriptor;
}

static void importer(void) {
    CUmemGenericAllocationHandle memory, again;
    CUmemAllocationProp properties;
    int descriptor = hear_descriptor();
    OK(cuMemImportFromShareableHandle(&memory, told(descriptor), DESCRIPTOR));
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, memory));
    EXPECT(properties.location.id == device);
    CUdeviceptr address = mapped(memory);
    OK(cuMemRelease(memory));
    EXPECT(word_at(address) == 7 && word_at(address + SIZE - 4) == 7);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &address));
    OK(cuCtxSynchronize());
    go();
    await();
    EXPECT(word_at(address) == 9);
    OK(cuMemImportFromShareableHandle(&again, told(descriptor), DESCRIPTOR));
    EXPECT(close(descriptor) == 0);
    CUdeviceptr second = mapped(again);
    EXPECT(word_at(second) == 9 && word_at(second + 4) == 7);
    OK(cuMemUnmap(address, SIZE));
    OK(cuMemAddressFree(address, SIZE));
    OK(cuMemRelease(again));
    EXPECT(word_at(second) == 9);
    OK(cuMemsetD32(second, 30, 1));
    OK(cuCtxSynchronize());
    go();
    await();
    EXPECT(word_at(second) == 30);
}

static void CUDA_CB take_a_while(void *unused) {
    (void)unused;
    usleep(20000);
}

// What a process takes in place of memory that it has released is its own, whatever the device does
// meanwhile.
static void release_while_a_host_function_runs(CUdeviceptr address) {
    CUmemGenericAllocationHandle memory;
    CUstream stream;
    CUdeviceptr instead;
    OK(cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)address));
    OK(cuMemUnmap(address, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(stream, take_a_while, NULL));
    OK(cuMemRelease(memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(memory));
    OK(cuMemAlloc(&instead, SIZE));
    OK(cuMemsetD32(instead, 5, SIZE / 4));
    OK(cuCtxSynchronize());
    OK(cuMemFree(instead));
}

int main(int count, char **arguments) {
    const char *role = role_of(count, arguments);
    start();
    if (strcmp(role, "importer") == 0) {
        importer();
        return check_failed;
    }
    CUmemAllocationProp shareable = of_type(DESCRIPTOR), plain = of_type(CU_MEM_HANDLE_TYPE_NONE),
                        fabric = of_type(CU_MEM_HANDLE_TYPE_FABRIC);
    CUmemGenericAllocationHandle memory, own, unshared, none;
    char garbage[64] = {1};
    int descriptor = -1, unused, nothing = open("/dev/null", O_RDWR), ends[2];
    OK(cuMemCreate(&memory, SIZE, &shareable, 0));
    OK(cuMemCreate(&unshared, SIZE, &plain, 0));
    CUresult refused = cuMemCreate(&none, SIZE, &fabric, 0); // by a GPU with NVLink, or one without
    EXPECT(refused == CUDA_ERROR_NOT_PERMITTED || refused == CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemExportToShareableHandle(&descriptor, memory, DESCRIPTOR, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&unused, unshared, DESCRIPTOR, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(NULL, memory, DESCRIPTOR, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&unused, memory, DESCRIPTOR, 1));
    FAILS(CUDA_ERROR_UNKNOWN, cuMemImportFromShareableHandle(&none, told(nothing), DESCRIPTOR));
    FAILS(CUDA_ERROR_UNKNOWN, cuMemImportFromShareableHandle(&none, told(-1), DESCRIPTOR));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&none, NULL, DESCRIPTOR));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(NULL, told(descriptor), DESCRIPTOR));
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && write(ends[0], garbage, 64) == 64);
    FAILS(CUDA_ERROR_UNKNOWN, cuMemImportFromShareableHandle(&none, told(ends[1]), DESCRIPTOR));
    OK(cuMemRelease(unshared));

    CUdeviceptr address = mapped(memory);
    OK(cuMemsetD32(address, 7, SIZE / 4));
    OK(cuMemRelease(memory));
    OK(cuMemImportFromShareableHandle(&own, told(descriptor), DESCRIPTOR)); /* in the same process too */
    CUdeviceptr twice = mapped(own);
    EXPECT(word_at(twice) == 7);
    OK(cuMemRelease(own));
    OK(cuMemUnmap(twice, SIZE));
    EXPECT(dup2(descriptor, 0) == 0); // a process without standard input has descriptor 0
    OK(cuMemImportFromShareableHandle(&own, told(0), DESCRIPTOR));
    OK(cuMemRelease(own));
    close(0);

    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    EXPECT(close(descriptor) == 0);
    pid_t child = spawn(arguments[0], "importer");
    tell_descriptor(copy);
    close(copy);
    await();
    EXPECT(word_at(address) == 8);
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &address));
    OK(cuCtxSynchronize());
    go();
    await();
    EXPECT(word_at(address) == 30 && word_at(address + 4) == 7);
    release_while_a_host_function_runs(address);
    go();
    EXPECT(ended_well(child));
    return check_failed;
}
