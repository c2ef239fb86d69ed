/* Copies to and from the first line of arrays by offsets in bytes, and copies given as lists: each is a copy
 * that copy.c knows. */
#include "array.h"
#include "simdevice_implicit.h"

static CUresult copy(CUstream stream, CUDA_MEMCPY3D *c, size_t size, bool synchronous) {
    SIM_TRY(sim_enter());
    const struct {
        CUmemorytype type;
        CUarray array;
    } sides[] = {{c->srcMemoryType, c->srcArray}, {c->dstMemoryType, c->dstArray}};
    unsigned texel = 0;
    for (size_t i = 0; i < SIM_COUNT(sides); i++) {
        if (sides[i].type != CU_MEMORYTYPE_ARRAY)
            continue;
        SIM_REQUIRE(sides[i].array);
        struct sim_array *array = sim_acquire(SIM_HANDLE(sides[i].array), SIM_ARRAY);
        if (!array)
            return CUDA_ERROR_INVALID_HANDLE;
        bool has_lines = array->shape == SIM_1D || array->shape == SIM_2D;
        unsigned bytes = (unsigned)array->texel.bytes * array->texel.channels;
        sim_release(array);
        SIM_REQUIRE(has_lines && (texel == 0 || texel == bytes)); /* of two arrays they must be the same */
        texel = bytes;
    }
    c->WidthInBytes = size;
    c->Height = c->Depth = 1;
    return synchronous ? sim_cuMemcpy3D_v2(stream, c) : cuMemcpy3DAsync_v2(c, stream);
}

#define TO_ARRAY(array, offset)                                                                              \
    .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = (array), .dstXInBytes = (offset)
#define FROM_ARRAY(array, offset)                                                                            \
    .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (array), .srcXInBytes = (offset)
#define TO_HOST(memory)     .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = (memory)
#define FROM_HOST(memory)   .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = (memory)
#define TO_DEVICE(memory)   .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (memory)
#define FROM_DEVICE(memory) .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = (memory)

CUresult sim_cuMemcpyDtoA_v2(CUstream stream, CUarray to, size_t offset, CUdeviceptr from, size_t size) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_DEVICE(from)}, size, true);
}

CUresult sim_cuMemcpyAtoD_v2(CUstream stream, CUdeviceptr to, CUarray from, size_t offset, size_t size) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_DEVICE(to), FROM_ARRAY(from, offset)}, size, true);
}

CUresult sim_cuMemcpyHtoA_v2(CUstream stream, CUarray to, size_t offset, const void *from, size_t size) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_HOST(from)}, size, true);
}

CUresult sim_cuMemcpyAtoH_v2(CUstream stream, void *to, CUarray from, size_t offset, size_t size) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_HOST(to), FROM_ARRAY(from, offset)}, size, true);
}

CUresult sim_cuMemcpyAtoA_v2(CUstream stream, CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                             size_t size) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_ARRAY(to, to_offset), FROM_ARRAY(from, from_offset)}, size, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t size, CUstream stream) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_HOST(from)}, size, false);
}

CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t size, CUstream stream) {
    return copy(stream, &(CUDA_MEMCPY3D){TO_HOST(to), FROM_ARRAY(from, offset)}, size, false);
}
