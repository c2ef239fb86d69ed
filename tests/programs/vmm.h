// Reservations, physical memory and rights, for the programs of cuMemAddressReserve, cuMemCreate and
// cuMemMap.
#ifndef VMM_H
#define VMM_H

#include "driver.h"

static CUmemAllocationProp properties;
static size_t granule;

static inline CUmemAccessDesc access_of(CUmemAccess_flags flags) {
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
}

static inline void start_vmm(void) {
    start();
    properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    OK(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT(granule > 0 && (granule & (granule - 1)) == 0);
}

static inline CUdeviceptr reserve(size_t size) {
    CUdeviceptr address = 0;
    QUIET(cuMemAddressReserve(&address, size, 0, 0, 0));
    return address;
}

static inline CUmemGenericAllocationHandle create(size_t size) {
    CUmemGenericAllocationHandle handle = 0;
    QUIET(cuMemCreate(&handle, size, &properties, 0));
    return handle;
}

static inline void map(CUdeviceptr address, size_t size, CUmemGenericAllocationHandle handle) {
    QUIET(cuMemMap(address, size, 0, handle, 0));
}

static inline void allow(CUdeviceptr address, size_t size, CUmemAccess_flags flags) {
    CUmemAccessDesc one = access_of(flags);
    QUIET(cuMemSetAccess(address, size, &one, 1));
}

static inline unsigned long long rights(CUdeviceptr address) {
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 99;
    QUIET(cuMemGetAccess(&flags, &here, address));
    return flags;
}

// What the current device may do, as the pointer tells.
static inline unsigned long long told_rights(CUdeviceptr address) {
    unsigned flags = 99;
    QUIET(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
    return flags;
}

static inline unsigned word_at(CUdeviceptr address) {
    unsigned value = 0;
    QUIET(cuMemcpyDtoH(&value, address, 4));
    return value;
}

static inline void store_at(CUdeviceptr address, unsigned value) {
    QUIET(LAUNCH(kernel("store"), 1, 1, NULL, &address, &value));
}

#endif
