/* Managed memory is host memory that kernels reach, so where its pages are best kept is nothing to act upon:
 * these calls check what they are given. */
#include "memory.h"
#include "stream.h"

static CUresult check_location(CUmemLocation location) {
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_at(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUmemLocation location_of(CUdevice device) {
    return device == CU_DEVICE_CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                                   : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static CUresult check_range(CUdeviceptr pointer, size_t size) {
    struct sim_span span;
    SIM_REQUIRE(pointer && size);
    SIM_TRY(sim_span_require(pointer, size, &span));
    SIM_REQUIRE(span.kind == SIM_RANGE_MANAGED);
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t size, CUmemLocation location, unsigned int flags,
                               CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(flags == 0);
    SIM_TRY(check_range(pointer, size));
    SIM_TRY(check_location(location));
    SIM_TRY(sim_stream_acquire(handle, &stream));
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream) {
    return cuMemPrefetchAsync_v2(pointer, size, location_of(device), 0, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t size, CUmem_advise advice, CUmemLocation location) {
    SIM_TRY(sim_enter());
    SIM_TRY(check_range(pointer, size));
    SIM_REQUIRE(advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY);
    /* the two about mostly reading, and forgetting the preferred location, name none */
    bool needs_location =
        advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY;
    return needs_location ? check_location(location) : CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t size, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(pointer, size, advice, location_of(device));
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t size, unsigned int flags) {
    struct sim_stream *stream;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                flags == CU_MEM_ATTACH_SINGLE);
    SIM_TRY(check_range(pointer, size ? size : 1));
    SIM_TRY(sim_stream_acquire(handle, &stream));
    sim_release(stream);
    return CUDA_SUCCESS;
}
