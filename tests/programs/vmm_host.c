// Physical memory of the host (cuMemCreate): program and kernels reach it at the address where it is mapped,
// and it holds what they wrote when it is mapped elsewhere. Its rights are the program's and the devices'.
#include "vmm.h"

static CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};

static CUmemAccessDesc of_host(CUmemAccess_flags flags) {
    return (CUmemAccessDesc){.location = host, .flags = flags};
}

static unsigned long long host_rights(CUdeviceptr address) {
    unsigned long long flags = 99;
    QUIET(cuMemGetAccess(&flags, &host, address));
    return flags;
}

static CUdeviceptr opened(size_t size, CUmemGenericAllocationHandle handle) {
    CUdeviceptr address = reserve(size);
    CUmemAccessDesc both[2] = {of_host(CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                               access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    map(address, size, handle);
    EXPECT(rights(address) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT(host_rights(address) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemSetAccess(address, size, both, 2));
    EXPECT(rights(address) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(host_rights(address) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return address;
}

static void closed(CUdeviceptr address, size_t size) {
    OK(cuMemUnmap(address, size));
    OK(cuMemAddressFree(address, size));
}

static void check_kind(CUdeviceptr address, size_t size) {
    CUmemorytype type = 0;
    void *on_host = NULL;
    CUdeviceptr base = 0;
    size_t whole = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 8));
    EXPECT(type == CU_MEMORYTYPE_HOST);
    OK(cuPointerGetAttribute(&on_host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 8));
    EXPECT(on_host == (void *)(address + 8));
    OK(cuMemGetAddressRange(&base, &whole, address + 8));
    EXPECT(base == address && whole == size);
}

static void check_refusals(void) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp wrong = properties;
    size_t found;
    wrong.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&found, &wrong, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &wrong, 0));
    wrong.location = host;
    wrong.location.id = 1000; // no such node
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &wrong, 0));
    wrong.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUdeviceptr address = reserve(granule);
    CUmemAccessDesc one = of_host(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemCreate(&handle, granule, &wrong, 0));
    map(address, granule, handle);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(address, granule, &one, 1)); // a device's memory
    OK(cuMemRelease(handle));
    closed(address, granule);
}

int main(void) {
    start_vmm();
    properties.location = host;
    size_t same = 0, size = 2 * granule;
    OK(cuMemGetAllocationGranularity(&same, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT(same == granule);
    CUmemGenericAllocationHandle handle = create(size);
    CUdeviceptr address = opened(size, handle);
    check_kind(address, size);

    volatile unsigned *words = (volatile unsigned *)address;
    words[0] = 1; // the program, then a kernel, beside each other
    words[size / 4 - 1] = 2;
    store_at(address + 4, 3);
    OK(cuCtxSynchronize());
    EXPECT(words[0] == 1 && words[1] == 3 && words[size / 4 - 1] == 2);
    EXPECT(word_at(address) == 1 && word_at(address + 4) == 3);
    CUdeviceptr plain = allocate(64);
    words[2] = 4;
    OK(cuMemcpyHtoD(plain, (const void *)(address + 8), 4)); // from it as from page-locked memory
    EXPECT(word_at(plain) == 4);
    OK(cuMemcpyDtoH((void *)(address + 12), plain, 4));
    EXPECT(words[3] == 4);
    OK(cuMemsetD32(address + 16, 5, 1));
    OK(cuCtxSynchronize());
    EXPECT(words[4] == 5);

    words[5] = 6; // nobody but the program knows of it yet
    OK(cuMemUnmap(address, size));
    CUdeviceptr elsewhere = opened(size, handle); // as a vector that grows does it
    volatile unsigned *moved = (volatile unsigned *)elsewhere;
    EXPECT(moved[0] == 1 && moved[1] == 3 && moved[5] == 6 && moved[size / 4 - 1] == 2);
    OK(cuMemRelease(handle));
    moved[6] = 7;
    EXPECT(word_at(elsewhere + 24) == 7);
    closed(elsewhere, size);
    OK(cuMemAddressFree(address, size));
    check_refusals();
    OK(cuMemFree(plain));
    return check_failed;
}
