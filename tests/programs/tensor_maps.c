// Tensor maps: what CUDA's manual asks of each parameter of the three encodings, the same map for the same
// parameters, and another address.
//
// device: sim a GPU of less than 9.0 has no tensor maps
#include "driver.h"

static CUtensorMap map;

struct tiled {
    CUtensorMapDataType type;
    unsigned rank;
    uint64_t address, dims[6], strides[5];
    unsigned box[6], steps[6];
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static const struct tiled plane = {
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    2,
    0x200000000000,
    {1024, 512, 4, 3, 2},
    {4096, 4096 * 512, 4096 * 2048, 4096 * 8192},
    {32, 16, 1, 1, 1},
    {1, 1, 1, 1, 1},
    CU_TENSOR_MAP_INTERLEAVE_NONE,
    CU_TENSOR_MAP_SWIZZLE_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
};

static CUresult encode(const struct tiled *t) {
    return cuTensorMapEncodeTiled(&map, t->type, t->rank, (void *)t->address, (const cuuint64_t *)t->dims,
                                  (const cuuint64_t *)t->strides, t->box, t->steps, t->interleave, t->swizzle,
                                  t->promotion, t->fill);
}

static CUresult columns(const struct tiled *t, const int *lower, const int *upper, unsigned channels,
                        unsigned pixels) {
    return cuTensorMapEncodeIm2col(&map, t->type, t->rank, (void *)t->address, (const cuuint64_t *)t->dims,
                                   (const cuuint64_t *)t->strides, lower, upper, channels, pixels, t->steps,
                                   t->interleave, t->swizzle, t->promotion, t->fill);
}

static CUresult wide(const struct tiled *t, int lower, int upper, unsigned channels, unsigned pixels,
                     CUtensorMapIm2ColWideMode mode) {
    return cuTensorMapEncodeIm2colWide(&map, t->type, t->rank, (void *)t->address,
                                       (const cuuint64_t *)t->dims, (const cuuint64_t *)t->strides, lower,
                                       upper, channels, pixels, t->steps, t->interleave, mode, t->swizzle,
                                       t->promotion, t->fill);
}

// One member is another: the call's result.
#define WITH(member, value)                                                                                  \
    do {                                                                                                     \
        struct tiled t = plane;                                                                              \
        t.member = (value);                                                                                  \
        check_result(#member " = " #value, check_name(encode(&t)), NULL);                                    \
    } while (0)

static void each_parameter(void) {
    OK(encode(&plane));
    for (unsigned rank = 0; rank < 7; rank++) {
        struct tiled t = plane;
        t.rank = rank;
        printf("rank %u: %s\n", rank, check_name(encode(&t)));
    }
    for (int type = 0; type < 17; type++) {
        struct tiled t = plane;
        t.type = type;
        t.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
        printf("type %d: %s", type, check_name(encode(&t)));
        t.box[0] = 128;
        printf(", a box of 128 %s", check_name(encode(&t)));
        t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
        printf(", NaN %s\n", check_name(encode(&t)));
    }
    WITH(address, 0x200000000008);
    WITH(address, 0x200000000010);
    WITH(dims[0], 0);
    WITH(dims[1], UINT64_C(1) << 31);
    WITH(dims[1], (UINT64_C(1) << 31) + 1);
    WITH(strides[0], 4100);
    WITH(strides[0], UINT64_C(1) << 40);
    WITH(strides[0], (UINT64_C(1) << 40) - 16);
    WITH(strides[1], 1);
    WITH(box[0], 0);
    WITH(box[0], 3);
    WITH(box[0], 64);
    WITH(box[1], 256);
    WITH(box[1], 257);
    WITH(steps[0], 9);
    WITH(steps[1], 0);
    WITH(steps[1], 8);
    WITH(steps[1], 9);
    WITH(interleave, CU_TENSOR_MAP_INTERLEAVE_16B);
    WITH(interleave, 3);
    WITH(swizzle, CU_TENSOR_MAP_SWIZZLE_64B);
    WITH(swizzle, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B);
    WITH(swizzle, 7);
    WITH(promotion, 4);
    WITH(fill, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuTensorMapEncodeTiled(NULL, 0, 1, (void *)16, (const cuuint64_t *)plane.dims, NULL, plane.box,
                                 plane.steps, 0, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuTensorMapEncodeTiled(&map, 0, 1, (void *)16, NULL, NULL, plane.box, plane.steps, 0, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuTensorMapEncodeTiled(&map, 0, 1, (void *)16, (const cuuint64_t *)plane.dims, NULL, NULL,
                                 plane.steps, 0, 0, 0, 0));
    OK(cuTensorMapEncodeTiled(&map, 0, 1, (void *)16, (const cuuint64_t *)plane.dims, NULL, plane.box,
                              plane.steps, 0, 0, 0, 0));

    // Whoever takes what malloc or Python give has it at a multiple of 16.
    char room[sizeof map + 64];
    CUtensorMap *elsewhere = (CUtensorMap *)(((uintptr_t)room + 63) / 64 * 64 + 16);
    OK(cuTensorMapEncodeTiled(elsewhere, 0, 1, (void *)16, (const cuuint64_t *)plane.dims, NULL, plane.box,
                              plane.steps, 0, 0, 0, 0));
    EXPECT(memcmp(elsewhere, &map, sizeof map) == 0);
    OK(cuTensorMapReplaceAddress(elsewhere, (void *)32));
    EXPECT(memcmp(elsewhere, &map, sizeof map) != 0);
}

static void interleaved(void) {
    struct tiled t = plane;
    t.rank = 3;
    t.interleave = CU_TENSOR_MAP_INTERLEAVE_32B;
    FAILS(CUDA_ERROR_INVALID_VALUE, encode(&t));
    t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
    OK(encode(&t));
    t.steps[0] = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, encode(&t));
    t.steps[0] = 1;
    t.strides[0] = 4112;
    FAILS(CUDA_ERROR_INVALID_VALUE, encode(&t));
    t.strides[0] = 4096;
    t.address += 16;
    FAILS(CUDA_ERROR_INVALID_VALUE, encode(&t));
}

static void pixels(void) {
    const int low[] = {-1, -1, -1}, high[] = {1, 1, 1}, edge[] = {-16, 15, 0}, out[] = {-17, 0, 0},
              nothing[] = {-3, 0, 0};
    struct tiled t = plane;
    t.dims[1] = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, low, high, 32, 16));
    t.rank = 3;
    OK(columns(&t, low, high, 32, 16));
    OK(columns(&t, low, high, 32, 1024));
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, low, high, 32, 1025));
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, low, high, 257, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, low, high, 64, 16)); // more than the swizzle spans
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, NULL, high, 32, 16));
    t.dims[1] = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, high, nothing, 32, 16));
    t.rank = 5;
    t.dims[1] = t.dims[2] = t.dims[3] = 64;
    OK(columns(&t, edge, edge, 32, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, columns(&t, out, high, 32, 16));
    t.rank = 4;
    OK(columns(&t, out, high, 32, 16));
    OK(wide(&t, -32768, 32767, 32, 16, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W));
    OK(wide(&t, 0, 0, 32, 0, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128));
    FAILS(CUDA_ERROR_INVALID_VALUE, wide(&t, 0, 0, 32, 0, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W));
    FAILS(CUDA_ERROR_INVALID_VALUE, wide(&t, 0, 32768, 32, 16, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W));
    FAILS(CUDA_ERROR_INVALID_VALUE, wide(&t, 0, 0, 32, 16, 2));
    t.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    FAILS(CUDA_ERROR_INVALID_VALUE, wide(&t, 0, 0, 32, 16, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W));
}

static void again(void) {
    CUtensorMap first, other;
    CUtensorMapAllocClass class = CU_TENSOR_MAP_ALLOC_CLASS_AUTO;
    struct tiled t = plane;
    QUIET(encode(&t));
    first = map;
    t.address += 4096;
    QUIET(encode(&t));
    other = map;
    EXPECT(memcmp(&first, &other, sizeof first) != 0);
    QUIET(encode(&plane));
    EXPECT(memcmp(&first, &map, sizeof first) == 0);
    OK(cuTensorMapReplaceAddress(&map, (void *)t.address));
    EXPECT(memcmp(&other, &map, sizeof other) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)(t.address + 8)));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(NULL, (void *)t.address));
    EXPECT(memcmp(&other, &map, sizeof other) == 0);
    OK(cuTensorMapSetAllocationClass(&map, CU_TENSOR_MAP_ALLOC_CLASS_LARGE, &class));
    OK(cuTensorMapSetAllocationClass(&map, CU_TENSOR_MAP_ALLOC_CLASS_AUTO, NULL));
    EXPECT(class == CU_TENSOR_MAP_ALLOC_CLASS_SMALL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapSetAllocationClass(&map, 3, &class));
}

// A map is 128 bytes, which may lie in device memory.
static void to_the_device(void) {
    CUdeviceptr copy = allocate(sizeof map);
    CUtensorMap back;
    OK(cuMemcpyHtoD(copy, &map, sizeof map));
    OK(cuMemcpyDtoH(&back, copy, sizeof back));
    EXPECT(memcmp(&back, &map, sizeof map) == 0);
    OK(cuMemFree(copy));
}

int main(void) {
    FAILS(CUDA_ERROR_NOT_INITIALIZED, encode(&plane));
    start();
    each_parameter();
    interleaved();
    pixels();
    again();
    to_the_device();
    return check_failed;
}
