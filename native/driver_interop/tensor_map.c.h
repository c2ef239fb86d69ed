/* Tensor maps: what CUDA's manual asks of their parameters, checked the same in the guest and on the
 * simulated device. It shows the relation of strides and sizes by a tensor without overlaps, but maps of
 * sliding windows are in use, so strides are held to their own limits only. It wants the map itself at a
 * multiple of 64, but cuda-core 1.2.2 lets Python allocate it, so that is not asked for. Who includes this
 * defines DRIVER(name), ENTER, and CUresult encode(CUtensorMap *to, const struct gf_tensor_map *map) CUresult
 * move(CUtensorMap *map, uint64_t address)
 */
#include <stdbool.h>
#include <string.h>

#include "tensor_map.h"

_Static_assert(sizeof(struct gf_tensor_map) == sizeof(CUtensorMap), "it is what a CUtensorMap holds");

#define LARGEST_DIM    (UINT64_C(1) << 31)
#define LARGEST_STRIDE (UINT64_C(1) << 40)

enum { LARGEST_BOX = 256, LARGEST_STEP = 8, LARGEST_COLUMN = 1024, PACKED_BOX = 128 };

/* In bits, of global memory; the three packed types are last. */
static const uint8_t type_bits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};

static bool is_aligned_16(unsigned type) {
    return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static bool is_float(unsigned type) {
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

/* Bytes in shared memory, where 16 values of the types that are aligned so take 16. */
static uint64_t shared_bytes(unsigned type, uint64_t elements) {
    return is_aligned_16(type) ? elements : elements * type_bits[type] / 8;
}

static uint64_t address_alignment(const struct gf_tensor_map *map) {
    return map->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_aligned_16(map->type) ? 32 : 16;
}

static bool swizzle_fits(const struct gf_tensor_map *map, uint64_t inner) {
    static const uint8_t span[] = {0, 32, 64, 128, 128, 128, 128};
    unsigned swizzle = map->swizzle;
    if (map->interleave == CU_TENSOR_MAP_INTERLEAVE_32B && swizzle != CU_TENSOR_MAP_SWIZZLE_32B) {
        return false;
    }
    if (is_aligned_16(map->type) && swizzle != CU_TENSOR_MAP_SWIZZLE_NONE &&
        swizzle != CU_TENSOR_MAP_SWIZZLE_128B && swizzle != CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B &&
        (swizzle != CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B ||
         map->type != CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B)) {
        return map->form == GF_TENSOR_IM2COL_WIDE && map->type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B &&
               swizzle == CU_TENSOR_MAP_SWIZZLE_64B;
    }
    return map->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ||
           inner <= span[swizzle];
}

/* Sizes, strides and steps, which all forms have. */
static bool take_shape(struct gf_tensor_map *map, const cuuint64_t *dims, const cuuint64_t *strides,
                       const cuuint32_t *steps) {
    uint64_t alignment = address_alignment(map);
    for (unsigned i = 0; i < map->rank; i++) {
        bool ignored = i == 0 && map->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
        if (dims[i] == 0 || dims[i] > LARGEST_DIM ||
            (!ignored && (steps[i] == 0 || steps[i] > LARGEST_STEP))) {
            return false;
        }
        if (i > 0 && (strides[i - 1] % alignment != 0 || strides[i - 1] >= LARGEST_STRIDE)) {
            return false;
        }
        map->dims[i] = (uint32_t)dims[i];
        map->steps[i] = ignored ? 1 : (uint8_t)steps[i];
        if (i > 0) {
            map->strides[i - 1] = strides[i - 1];
        }
    }
    return dims[0] % (is_aligned_16(map->type)                            ? PACKED_BOX
                      : map->type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B ? 2
                                                                          : 1) ==
           0;
}

/* What all forms are given. The form, and the least rank it has, are the caller's. */
static CUresult begin(struct gf_tensor_map *map, enum gf_tensor_form form, const CUtensorMap *to,
                      unsigned type, unsigned rank, void *address, const cuuint64_t *dims,
                      const cuuint64_t *strides, const cuuint32_t *steps, unsigned interleave,
                      unsigned swizzle, unsigned promotion, unsigned fill) {
    unsigned least = form != GF_TENSOR_TILED || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ? 3 : 1;
    if (to == NULL || dims == NULL || steps == NULL || rank < least || rank > GF_TENSOR_RANK_MOST ||
        (strides == NULL && rank > 1) || type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B ||
        interleave > CU_TENSOR_MAP_INTERLEAVE_32B || swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B ||
        promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *map = (struct gf_tensor_map){.address = (uintptr_t)address,
                                  .form = (uint8_t)form,
                                  .type = (uint8_t)type,
                                  .rank = (uint8_t)rank,
                                  .interleave = (uint8_t)interleave,
                                  .swizzle = (uint8_t)swizzle,
                                  .promotion = (uint8_t)promotion,
                                  .fill = (uint8_t)fill,
                                  .magic = GF_TENSOR_MAP_MAGIC};
    bool fits =
        map->address % address_alignment(map) == 0 && take_shape(map, dims, strides, steps) &&
        (type != CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) &&
        (fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || is_float(type));
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult DRIVER(cuTensorMapEncodeTiled)(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                        cuuint32_t tensorRank, void *globalAddress,
                                        const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                        const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill) {
    struct gf_tensor_map map;
    ENTER;
    CUresult result = boxDim == NULL ? CUDA_ERROR_INVALID_VALUE
                                     : begin(&map, GF_TENSOR_TILED, tensorMap, tensorDataType, tensorRank,
                                             globalAddress, globalDim, globalStrides, elementStrides,
                                             interleave, swizzle, l2Promotion, oobFill);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (unsigned i = 0; i < tensorRank; i++) {
        if (boxDim[i] == 0 || boxDim[i] > LARGEST_BOX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        map.box[i] = (uint16_t)boxDim[i];
    }
    uint64_t inner = shared_bytes(map.type, boxDim[0]);
    bool whole = interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || inner % 16 == 0;
    bool packed = !is_aligned_16(map.type) || boxDim[0] == PACKED_BOX;
    return whole && packed && swizzle_fits(&map, inner) ? encode(tensorMap, &map) : CUDA_ERROR_INVALID_VALUE;
}

/* Corners of the box over which pixels move: within what their number leaves of bits, and not around nothing.
 */
static bool take_corners(struct gf_tensor_map *map, unsigned count, const int *lower, const int *upper) {
    static const int bounds[] = {32768, 128, 16};
    int bound = bounds[count - 1];
    for (unsigned i = 0; i < count; i++) {
        if (lower[i] < -bound || lower[i] >= bound || upper[i] < -bound || upper[i] >= bound ||
            (int64_t)map->dims[i + 1] + upper[i] - lower[i] <= 0) {
            return false;
        }
        map->lower[i] = (int16_t)lower[i];
        map->upper[i] = (int16_t)upper[i];
    }
    return true;
}

static CUresult finish_pixels(CUtensorMap *to, struct gf_tensor_map *map, cuuint32_t channels,
                              cuuint32_t pixels) {
    if (channels == 0 || channels > LARGEST_BOX || pixels == 0 || pixels > LARGEST_COLUMN ||
        (is_aligned_16(map->type) && channels != PACKED_BOX) ||
        !swizzle_fits(map, shared_bytes(map->type, channels))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    map->box[0] = (uint16_t)channels;
    map->box[1] = (uint16_t)pixels;
    return encode(to, map);
}

CUresult DRIVER(cuTensorMapEncodeIm2col)(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                         cuuint32_t tensorRank, void *globalAddress,
                                         const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                         const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner,
                                         cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                         const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                         CUtensorMapFloatOOBfill oobFill) {
    struct gf_tensor_map map;
    ENTER;
    CUresult result =
        pixelBoxLowerCorner == NULL || pixelBoxUpperCorner == NULL
            ? CUDA_ERROR_INVALID_VALUE
            : begin(&map, GF_TENSOR_IM2COL, tensorMap, tensorDataType, tensorRank, globalAddress, globalDim,
                    globalStrides, elementStrides, interleave, swizzle, l2Promotion, oobFill);
    if (result == CUDA_SUCCESS &&
        !take_corners(&map, tensorRank - 2, pixelBoxLowerCorner, pixelBoxUpperCorner)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS ? finish_pixels(tensorMap, &map, channelsPerPixel, pixelsPerColumn)
                                  : result;
}

CUresult DRIVER(cuTensorMapEncodeIm2colWide)(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void *globalAddress,
    const cuuint64_t *globalDim, const cuuint64_t *globalStrides, int pixelBoxLowerCornerWidth,
    int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
    const cuuint32_t *elementStrides, CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill) {
    struct gf_tensor_map map;
    bool any_length = mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128;
    ENTER;
    CUresult result =
        begin(&map, GF_TENSOR_IM2COL_WIDE, tensorMap, tensorDataType, tensorRank, globalAddress, globalDim,
              globalStrides, elementStrides, interleave, swizzle, l2Promotion, oobFill);
    bool fits = result == CUDA_SUCCESS && (unsigned)mode <= CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 &&
                (swizzle == CU_TENSOR_MAP_SWIZZLE_64B || swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
                 swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B) &&
                take_corners(&map, 1, &pixelBoxLowerCornerWidth, &pixelBoxUpperCornerWidth);
    if (!fits) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    map.mode = (uint8_t)mode;
    return finish_pixels(tensorMap, &map, channelsPerPixel, any_length ? 128 : pixelsPerColumn);
}

CUresult DRIVER(cuTensorMapReplaceAddress)(CUtensorMap *tensorMap, void *globalAddress) {
    ENTER;
    return tensorMap == NULL ? CUDA_ERROR_INVALID_VALUE : move(tensorMap, (uintptr_t)globalAddress);
}

/* The small class is always in effect: it is right for every tensor. */
CUresult DRIVER(cuTensorMapSetAllocationClass)(CUtensorMap *tensorMap, CUtensorMapAllocClass allocClass,
                                               CUtensorMapAllocClass *outAllocClass) {
    ENTER;
    if (outAllocClass != NULL) {
        *outAllocClass = CU_TENSOR_MAP_ALLOC_CLASS_SMALL;
    }
    return tensorMap == NULL || (unsigned)allocClass > CU_TENSOR_MAP_ALLOC_CLASS_LARGE
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

#undef LARGEST_DIM
#undef LARGEST_STRIDE
