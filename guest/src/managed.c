/* Managed memory. Where its pages are best kept is nothing to act upon: they follow whoever touches them. */
#include "calls.h"
#include "functions.h"
#include "guest.h"
#include "shared.h"
#include "stream.h"

CUresult gf_managed_alloc(CUdeviceptr *address, size_t size, unsigned flags) {
    uint64_t found;
    CUresult result = gf_shared_alloc(size, flags, true, &found);
    if (result == CUDA_SUCCESS) {
        *address = found;
    }
    return result;
}

static CUresult check_range(CUdeviceptr address, size_t size) {
    struct gf_shared shared;
    bool within = size > 0 && gf_shared_find(address, &shared) && shared.managed &&
                  size <= shared.size - (address - shared.address);
    return within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_location(CUmemLocation location) {
    switch ((int)location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id >= 0 && location.id < gf_session.device_count ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_DEVICE;
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

CUresult gf_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned flags,
                                  CUstream hStream) {
    uint64_t wire;
    CUresult result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : check_range(devPtr, count);
    result = result == CUDA_SUCCESS ? check_location(location) : result;
    return result == CUDA_SUCCESS ? gf_wire_stream(hStream, &wire) : result;
}

CUresult gf_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    return gf_cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

CUresult gf_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    CUresult result = check_range(devPtr, count);
    if (result != CUDA_SUCCESS || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
        advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool names_one =
        advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY;
    return names_one ? check_location(location) : CUDA_SUCCESS;
}

CUresult gf_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return gf_cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

CUresult gf_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned flags) {
    uint64_t wire;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_range(dptr, length == 0 ? 1 : length);
    return result == CUDA_SUCCESS ? gf_wire_stream(hStream, &wire) : result;
}
