/* From CUDA's descriptors to what kernels see. */
#include "array.h"
#include "memory.h"
#include "texture.h"

#define SAMPLER_FLAGS                                                                                        \
    (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |                               \
     CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP)

enum {
    PITCH_ALIGNMENT = 32,
    MOST_LINEAR = 1 << 28,
    MOST_LINEAR_WIDTH = 131072,
    MOST_LINEAR_HEIGHT = 65000,
    MOST_LINEAR_PITCH = 2097120,
};

static CUresult of_array(CUarray handle, struct sim_view *view) {
    struct sim_array *array = sim_acquire(SIM_HANDLE(handle), SIM_ARRAY);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    view->shape = array->shape;
    view->format = array->desc.Format;
    view->texel = array->texel;
    view->level_count = 1;
    view->levels[0] = array->level;
    sim_release(array);
    return CUDA_SUCCESS;
}

static CUresult of_mipmap(CUmipmappedArray handle, struct sim_view *view) {
    struct sim_mipmap *mipmap = sim_acquire(SIM_HANDLE(handle), SIM_MIPMAP);
    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = CUDA_SUCCESS;
    struct sim_view level;
    for (uint32_t i = 0; i < mipmap->level_count && result == CUDA_SUCCESS; i++) {
        result = of_array(mipmap->levels[i], &level);
        view->levels[i] = level.levels[0];
    }
    view->shape = level.shape;
    view->format = level.format;
    view->texel = level.texel;
    view->level_count = mipmap->level_count;
    sim_release(mipmap);
    return result;
}

static CUresult of_memory(CUdeviceptr address, CUarray_format format, unsigned channels, uint64_t width,
                          uint64_t height, uint64_t pitch, struct sim_view *view) {
    SIM_REQUIRE(sim_texel_of(format, channels, &view->texel) && address % SIM_TEXTURE_ALIGNMENT == 0 &&
                width && height);
    struct sim_span span;
    SIM_TRY(sim_span_require(address, pitch * (height - 1) + width * view->texel.bytes * channels, &span));
    view->format = format;
    view->level_count = 1;
    view->levels[0] = (struct sim_level){.address = address,
                                         .pitch = pitch,
                                         .width = (uint32_t)width,
                                         .height = (uint32_t)height,
                                         .layers = 1};
    return CUDA_SUCCESS;
}

CUresult sim_view_of_resource(const CUDA_RESOURCE_DESC *resource, struct sim_view *view) {
    SIM_REQUIRE(!resource->flags);
    struct sim_texel texel;
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return of_array(resource->res.array.hArray, view);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return of_mipmap(resource->res.mipmap.hMipmappedArray, view);
    case CU_RESOURCE_TYPE_LINEAR: {
        CUarray_format format = resource->res.linear.format;
        unsigned channels = resource->res.linear.numChannels;
        SIM_REQUIRE(sim_texel_of(format, channels, &texel));
        uint64_t count = resource->res.linear.sizeInBytes / ((uint64_t)texel.bytes * channels);
        SIM_REQUIRE(count <= MOST_LINEAR);
        view->shape = SIM_1D;
        view->buffer = true;
        return of_memory(resource->res.linear.devPtr, format, channels, count, 1, 0, view);
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
        CUarray_format format = resource->res.pitch2D.format;
        unsigned channels = resource->res.pitch2D.numChannels;
        uint64_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height,
                 pitch = resource->res.pitch2D.pitchInBytes;
        SIM_REQUIRE(sim_texel_of(format, channels, &texel));
        SIM_REQUIRE(width <= MOST_LINEAR_WIDTH && height <= MOST_LINEAR_HEIGHT && pitch <= MOST_LINEAR_PITCH);
        SIM_REQUIRE(pitch % PITCH_ALIGNMENT == 0 && pitch >= width * texel.bytes * channels);
        view->shape = SIM_2D;
        return of_memory(resource->res.pitch2D.devPtr, format, channels, width, height, pitch, view);
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Formats of views come in threes: of 1, 2 and 4 channels. */
static CUresult view_format(CUresourceViewFormat format, struct sim_view *view) {
    static const CUarray_format formats[] = {
        CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8,    CU_AD_FORMAT_UNSIGNED_INT16,
        CU_AD_FORMAT_SIGNED_INT16,  CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
        CU_AD_FORMAT_HALF,          CU_AD_FORMAT_FLOAT,
    };
    if (format == CU_RES_VIEW_FORMAT_NONE)
        return CUDA_SUCCESS;
    unsigned number = (unsigned)format - CU_RES_VIEW_FORMAT_UINT_1X8;
    if (format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1 && format <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(number / 3 < SIM_COUNT(formats));
    struct sim_texel texel;
    SIM_REQUIRE(sim_texel_of(formats[number / 3], 1u << number % 3, &texel));
    SIM_REQUIRE(texel.bytes * texel.channels == view->texel.bytes * view->texel.channels);
    view->texel = texel;
    view->format = formats[number / 3];
    return CUDA_SUCCESS;
}

CUresult sim_view_narrow(const CUDA_RESOURCE_DESC *resource, const CUDA_RESOURCE_VIEW_DESC *part,
                         struct sim_view *view) {
    if (!part)
        return CUDA_SUCCESS;
    SIM_REQUIRE(resource->resType == CU_RESOURCE_TYPE_ARRAY ||
                resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
    SIM_TRY(view_format(part->format, view));
    const struct sim_level *first = view->levels;
    uint32_t depth = view->shape == SIM_3D ? first->layers : 0;
    SIM_REQUIRE(part->width == first->width && (!part->height || part->height == first->height));
    SIM_REQUIRE(!part->depth || part->depth == depth || view->shape != SIM_3D);
    SIM_REQUIRE(part->firstMipmapLevel <= part->lastMipmapLevel && part->lastMipmapLevel < view->level_count);
    bool layered = view->shape >= SIM_1D_LAYERED;
    SIM_REQUIRE(part->firstLayer <= part->lastLayer && part->lastLayer < (layered ? first->layers : 1));
    view->level_count = part->lastMipmapLevel - part->firstMipmapLevel + 1;
    for (uint32_t i = 0; i < view->level_count; i++) {
        struct sim_level *level = &view->levels[i];
        *level = view->levels[part->firstMipmapLevel + i];
        level->address += part->firstLayer * level->slice;
        if (layered)
            level->layers = part->lastLayer - part->firstLayer + 1;
    }
    return CUDA_SUCCESS;
}

CUresult sim_sampler_of(const CUDA_TEXTURE_DESC *desc, const struct sim_view *view,
                        struct sim_sampler *sampler) {
    SIM_REQUIRE(!(desc->flags & ~(unsigned)SAMPLER_FLAGS));
    SIM_REQUIRE(desc->filterMode <= CU_TR_FILTER_MODE_LINEAR &&
                desc->mipmapFilterMode <= CU_TR_FILTER_MODE_LINEAR);
    *sampler = (struct sim_sampler){
        .linear = desc->filterMode == CU_TR_FILTER_MODE_LINEAR && !view->buffer,
        .mip_linear = desc->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR,
        .normalized = (desc->flags & CU_TRSF_NORMALIZED_COORDINATES) && !view->buffer,
        .integers = desc->flags & CU_TRSF_READ_AS_INTEGER,
        .srgb = desc->flags & CU_TRSF_SRGB,
        .bias = desc->mipmapLevelBias,
        .least = desc->minMipmapLevelClamp,
        .most = desc->maxMipmapLevelClamp,
    };
    bool cube = view->shape == SIM_CUBE || view->shape == SIM_CUBE_LAYERED;
    sampler->seamless = cube && sampler->linear && (desc->flags & CU_TRSF_SEAMLESS_CUBEMAP);
    for (int d = 0; d < 3; d++) {
        CUaddress_mode mode = desc->addressMode[d];
        SIM_REQUIRE(mode <= CU_TR_ADDRESS_MODE_BORDER);
        bool repeats = mode == CU_TR_ADDRESS_MODE_WRAP || mode == CU_TR_ADDRESS_MODE_MIRROR;
        if (cube || (repeats && !sampler->normalized))
            mode = CU_TR_ADDRESS_MODE_CLAMP;
        sampler->address[d] = view->buffer ? CU_TR_ADDRESS_MODE_BORDER : mode; /* zero beyond its end */
    }
    for (int c = 0; c < 4 && !view->buffer; c++)
        sampler->border[c] = desc->borderColor[c];
    return CUDA_SUCCESS;
}
