/* What an array may look like. */
#include "array.h"

#define FLAGS                                                                                                \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER | \
     CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE |                      \
     CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)

/* The largest extents by shape, as the device's attributes tell them. 0: none but 0 is right. */
static const struct extents {
    uint32_t width, height, depth;
} most[] =
    {
        [SIM_1D] = {131072, 0, 0},
        [SIM_2D] = {131072, 65536, 0},
        [SIM_3D] = {16384, 16384, 32768},
        [SIM_1D_LAYERED] = {32768, 0, 2048},
        [SIM_2D_LAYERED] = {32768, 32768, 2048},
        [SIM_CUBE] = {32768, 32768, 6},
        [SIM_CUBE_LAYERED] = {32768, 32768, 2046},
    },
  most_mipmapped[] = {
      [SIM_1D] = {32768, 0, 0},
      [SIM_2D] = {32768, 32768, 0},
  };

static enum sim_shape shape_of(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED;
    if (desc->Flags & CUDA_ARRAY3D_CUBEMAP)
        return layered ? SIM_CUBE_LAYERED : SIM_CUBE;
    if (layered)
        return desc->Height ? SIM_2D_LAYERED : SIM_1D_LAYERED;
    return desc->Depth ? SIM_3D : desc->Height ? SIM_2D : SIM_1D;
}

/* One of the formats of cuda.h that are not taken apart here: blocks, planes. */
static bool is_other_format(CUarray_format format) {
    return (format >= 0x50 && format <= 0x5e) || (format >= 0x91 && format <= 0xb5);
}

static CUresult check_flags(unsigned flags, enum sim_shape shape) {
    SIM_REQUIRE(!(flags & ~(unsigned)FLAGS));
    if (flags & CUDA_ARRAY3D_TEXTURE_GATHER)
        SIM_REQUIRE(shape == SIM_2D);
    if (flags & CUDA_ARRAY3D_SPARSE) {
        SIM_REQUIRE(shape == SIM_2D || shape == SIM_3D || shape == SIM_2D_LAYERED);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (flags & (CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

static uint32_t levels_of(const struct sim_level *level, enum sim_shape shape) {
    uint32_t most_extent = level->width > level->height ? level->width : level->height, count = 1;
    if (shape == SIM_3D && level->layers > most_extent)
        most_extent = level->layers;
    while (most_extent >>= 1)
        count++;
    return count;
}

CUresult sim_array_check(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t *levels, struct sim_texel *texel,
                         enum sim_shape *shape, struct sim_level *level) {
    *shape = shape_of(desc);
    bool other = is_other_format(desc->Format), known = sim_texel_of(desc->Format, desc->NumChannels, texel);
    const struct extents *limit = levels && *shape <= SIM_2D ? &most_mipmapped[*shape] : &most[*shape];
    SIM_REQUIRE(other || known);
    SIM_REQUIRE(desc->Width && desc->Width <= limit->width && desc->Height <= limit->height &&
                desc->Depth <= limit->depth);
    SIM_REQUIRE(*shape != SIM_3D || desc->Height);
    SIM_REQUIRE(*shape < SIM_1D_LAYERED || desc->Depth);
    SIM_REQUIRE(*shape < SIM_CUBE || (desc->Width == desc->Height && desc->Depth % 6 == 0));
    SIM_TRY(check_flags(desc->Flags, *shape));
    if (other)
        return CUDA_ERROR_NOT_SUPPORTED;
    *level = (struct sim_level){.width = (uint32_t)desc->Width,
                                .height = desc->Height ? (uint32_t)desc->Height : 1,
                                .layers = desc->Depth ? (uint32_t)desc->Depth : 1};
    if (levels) {
        uint32_t all = levels_of(level, *shape);
        *levels = *levels == 0 ? 1 : *levels < all ? *levels : all;
    }
    return CUDA_SUCCESS;
}
