// Who may use the program's own virtual memory changes while a stream waits for a function of the program.
#include <time.h>

#include "driver.h"

enum { TIMES = 3 };

static void takes_its_time(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

int main(void) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}};
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr address;
    size_t size;
    unsigned word = 0;
    start();
    OK(cuMemGetAllocationGranularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&memory, size, &properties, 0));
    OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    OK(cuMemMap(address, size, 0, memory, 0));
    for (unsigned i = 0; i < TIMES; i++) {
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        OK(cuMemSetAccess(address, size, &access, 1));
        OK(cuMemsetD32Async(address, i, size / 4, NULL));
        OK(cuLaunchHostFunc(NULL, takes_its_time, NULL));
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
        OK(cuMemSetAccess(address, size, &access, 1));
        OK(cuMemcpyDtoH(&word, address, sizeof word));
        EXPECT(word == i);
        OK(cuLaunchHostFunc(NULL, takes_its_time, NULL));
    }
    OK(cuMemUnmap(address, size));
    OK(cuMemAddressFree(address, size));
    OK(cuMemRelease(memory));
    return check_failed;
}
