// What virtual memory refuses: sizes and addresses that do not fit, memory that is mapped or not, parts of
// mappings, handles that are gone.
#include "vmm.h"

static void wrong_memory(void) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp wrong = properties, found;
    size_t size, available, total;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &properties, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule / 2, &properties, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(NULL, granule, &properties, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &properties, 1));
    wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &wrong, 0));
    wrong = properties;
    wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &wrong, 0));
    wrong = properties;
    wrong.location.id = 1000;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &wrong, 0));
    OK(cuMemGetInfo(&available, &total));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (total / granule + 1) * granule, &properties, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetAllocationGranularity(NULL, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetAllocationGranularity(&size, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetAllocationGranularity(&size, &properties, (CUmemAllocationGranularity_flags)7));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&found, 0));
    handle = create(granule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(NULL, handle));
    OK(cuMemRelease(handle));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
}

static void wrong_reservations(void) {
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, granule + 1, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, granule, 3, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, granule, 0, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(NULL, granule, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(0, granule));
    address = reserve(4 * granule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, granule));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address + granule, 3 * granule));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 4 * granule - 4096));
    OK(cuMemAddressFree(address, 4 * granule));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 4 * granule));
}

static void wrong_maps(void) {
    CUmemGenericAllocationHandle handle = create(2 * granule), other = create(granule), found;
    CUdeviceptr base = reserve(4 * granule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(0, granule, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 0, 0, handle, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(base, granule + 4096, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + 4096, granule, 0, handle, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(base, granule, granule, handle, 0)); // an offset must be 0
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 3 * granule, 0, handle, 0));   // more than there is
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + 3 * granule, 2 * granule, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 2 * granule, 0, handle, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 2 * granule, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&found, (void *)base));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, granule));
    OK(cuMemMap(base, 2 * granule, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + granule, granule, 0, other, 0)); // taken
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(NULL, (void *)base));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&found, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, granule)); // a part of a mapping
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + granule, granule));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 3 * granule));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 4 * granule)); // something is mapped
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(base));
    OK(cuMemMap(base + 2 * granule, granule, 0, other, 0));
    OK(cuMemUnmap(base, 3 * granule)); // several whole ones at once
    OK(cuMemRelease(handle));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 2 * granule, 0, handle, 0));
    OK(cuMemRelease(other));
    OK(cuMemAddressFree(base, 4 * granule));
    CUdeviceptr odd = reserve(granule + 4096); // what is reserved is what was asked for
    handle = create(granule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(odd + granule, granule, 0, handle, 0));
    OK(cuMemMap(odd, granule, 0, handle, 0));
    OK(cuMemUnmap(odd, granule));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(odd, granule + 4096));
    CUdeviceptr plain = allocate(granule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&found, (void *)plain));
    store_at(plain, 7);
    EXPECT(word_at(plain) == 7);
}

// Ranges that end behind the last address there is.
static void endless(void) {
    const size_t most = SIZE_MAX - 7;
    CUmemGenericAllocationHandle handle = create(granule);
    CUdeviceptr base = reserve(granule);
    unsigned word = 3;
    map(base, granule, handle);
    allow(base, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(base, 0, most));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(base, &word, most));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(base, base + 16, most, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(base, granule));
    OK(cuMemAddressFree(base, granule));
    OK(cuMemRelease(handle));
}

// Memory that was freed is nowhere, whatever physical memory has taken its place.
static void stale(void) {
    CUdeviceptr base = reserve(granule), freed = allocate(granule);
    OK(cuMemFree(freed));
    CUmemGenericAllocationHandle handle = create(granule);
    map(base, granule, handle);
    allow(base, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    store_at(base, 5);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(freed, 6, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(freed));
    EXPECT(word_at(base) == 5);
    OK(cuMemUnmap(base, granule));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(base, granule));
}

// Page-locked memory may lie where reservations do, and with something mapped, but not by these calls.
static void page_locked(void) {
    CUmemGenericAllocationHandle handle = create(granule);
    CUmemAccessDesc none = access_of(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    unsigned *memory = NULL;
    OK(cuMemAllocHost((void **)&memory, 65536));
    CUdeviceptr address = (CUdeviceptr)memory;
    for (unsigned i = 0; i < 2; i++) { // before a kernel reaches it, and then
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, granule, 0, handle, 0));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, granule, &none, 1));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, granule));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 65536));
        store_at(address, 7 + i);
        OK(cuCtxSynchronize());
        EXPECT(*memory == 7 + i);
    }
    OK(cuMemFreeHost(memory));
    OK(cuMemRelease(handle));
}

int main(void) {
    start_vmm();
    stale();
    endless();
    page_locked();
    wrong_memory();
    wrong_reservations();
    wrong_maps();
    return check_failed;
}
