/* Interfaces of 32 bits (cuMemAlloc and others as CUDA 2 had them). */
#include "sim.h"

#define DRIVER(name) name
#define ENTER        SIM_TRY(sim_enter())

#include "driver_interop/narrow.c.h"

CUresult cuMemFree(CUdeviceptr_v1 address) {
    return cuMemFree_v2(address);
}

CUresult cuMemAllocHost(void **memory, unsigned int bytes) {
    return cuMemAllocHost_v2(memory, bytes);
}

CUresult cuMemcpyHtoD(CUdeviceptr_v1 to, const void *from, unsigned int bytes) {
    return cuMemcpyHtoD_v2(to, from, bytes);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr_v1 from, unsigned int bytes) {
    return cuMemcpyDtoH_v2(to, from, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes) {
    return cuMemcpyDtoD_v2(to, from, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 to, const void *from, unsigned int bytes, CUstream stream) {
    return cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream) {
    return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

CUresult cuMemsetD8(CUdeviceptr_v1 to, unsigned char value, unsigned int count) {
    return cuMemsetD8_v2(to, value, count);
}

CUresult cuMemsetD16(CUdeviceptr_v1 to, unsigned short value, unsigned int count) {
    return cuMemsetD16_v2(to, value, count);
}

CUresult cuMemsetD32(CUdeviceptr_v1 to, unsigned int value, unsigned int count) {
    return cuMemsetD32_v2(to, value, count);
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 to, unsigned int pitch, unsigned char value, unsigned int width,
                      unsigned int height) {
    return cuMemsetD2D8_v2(to, pitch, value, width, height);
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 to, unsigned int pitch, unsigned short value, unsigned int width,
                       unsigned int height) {
    return cuMemsetD2D16_v2(to, pitch, value, width, height);
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 to, unsigned int pitch, unsigned int value, unsigned int width,
                       unsigned int height) {
    return cuMemsetD2D32_v2(to, pitch, value, width, height);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *narrow) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(narrow);
    CUDA_MEMCPY2D copy = widen_2d(narrow);
    return cuMemcpy2D_v2(&copy);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *narrow) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(narrow);
    CUDA_MEMCPY2D copy = widen_2d(narrow);
    return cuMemcpy2DUnaligned_v2(&copy);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *narrow, CUstream stream) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(narrow);
    CUDA_MEMCPY2D copy = widen_2d(narrow);
    return cuMemcpy2DAsync_v2(&copy, stream);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *narrow) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(narrow);
    CUDA_MEMCPY3D copy = widen_3d(narrow);
    return cuMemcpy3D_v2(&copy);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *narrow, CUstream stream) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(narrow);
    CUDA_MEMCPY3D copy = widen_3d(narrow);
    return cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult cuMemcpyDtoA(CUarray to, unsigned int offset, CUdeviceptr_v1 from, unsigned int bytes) {
    return cuMemcpyDtoA_v2(to, offset, from, bytes);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 to, CUarray from, unsigned int offset, unsigned int bytes) {
    return cuMemcpyAtoD_v2(to, from, offset, bytes);
}

CUresult cuMemcpyHtoA(CUarray to, unsigned int offset, const void *from, unsigned int bytes) {
    return cuMemcpyHtoA_v2(to, offset, from, bytes);
}

CUresult cuMemcpyAtoH(void *to, CUarray from, unsigned int offset, unsigned int bytes) {
    return cuMemcpyAtoH_v2(to, from, offset, bytes);
}

CUresult cuMemcpyAtoA(CUarray to, unsigned int to_offset, CUarray from, unsigned int from_offset,
                      unsigned int bytes) {
    return cuMemcpyAtoA_v2(to, to_offset, from, from_offset, bytes);
}

CUresult cuMemcpyHtoAAsync(CUarray to, unsigned int offset, const void *from, unsigned int bytes,
                           CUstream stream) {
    return cuMemcpyHtoAAsync_v2(to, offset, from, bytes, stream);
}

CUresult cuMemcpyAtoHAsync(void *to, CUarray from, unsigned int offset, unsigned int bytes, CUstream stream) {
    return cuMemcpyAtoHAsync_v2(to, from, offset, bytes, stream);
}
