// Memory pools and what they say of themselves, for the programs that use them.
#ifndef POOLS_H
#define POOLS_H

#include "driver.h"

enum { MIB2 = 2 << 20 }; // what any driver allocates without rounding

static inline CUmemPoolProps pool_of(int ordinal) {
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}}};
}

static inline CUmemoryPool new_pool(size_t most) {
    CUmemPoolProps properties = pool_of(device);
    CUmemoryPool pool = NULL;
    properties.maxSize = most;
    QUIET(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static inline uint64_t amount(CUmemoryPool pool, CUmemPool_attribute attribute) {
    uint64_t value = 0;
    QUIET(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static inline int number(CUmemoryPool pool, CUmemPool_attribute attribute) {
    int value = -99;
    QUIET(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static inline CUdeviceptr take(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr address = 0;
    QUIET(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
    return address;
}

#endif
