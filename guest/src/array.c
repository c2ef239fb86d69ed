#include "array.h"

#include "calls.h"
#include "codecs.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "session.h"
#include "steps.h"
#include "window.h"

#define UNIT (64ull << 10) /* an array counts as a multiple of this; the server reckons likewise */

uint64_t gf_texel_size(CUarray_format format, unsigned channels) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4ull * channels;
    default:
        return 0;
    }
}

static uint64_t extent(size_t given) {
    return given > 0 ? given : 1;
}

static uint64_t charge_of(const struct gf_array *array) {
    uint64_t bytes = gf_texel_size(array->format, array->channels) * extent(array->width) *
                     extent(array->height) * extent(array->depth);
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* The device's largest extents, by shape; 0: there must be none. */
enum shape { LINE, PLANE, VOLUME, LINES, PLANES, CUBE, CUBES };

static const struct {
    int width, height, depth;
} most[] = {
    [LINE] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 0, 0},
    [PLANE] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 0},
    /* A volume that is too deep only is accepted: its depth may be that of the alternate extents. */
    [VOLUME] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE},
    [LINES] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 0,
               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS},
    [PLANES] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS},
    [CUBE] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS},
    [CUBES] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS},
};

static enum shape shape_of(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED;
    if (desc->Flags & CUDA_ARRAY3D_CUBEMAP) {
        return layered ? CUBES : CUBE;
    }
    if (layered) {
        return desc->Height > 0 ? PLANES : LINES;
    }
    return desc->Depth > 0 ? VOLUME : desc->Height > 0 ? PLANE : LINE;
}

static bool within(size_t extent, int attribute) {
    return attribute == 0 ? extent == 0 : extent <= (size_t)gf_session.device.attributes[attribute];
}

static bool has_a_form(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    enum shape shape = shape_of(desc);
    if (desc->Width == 0 || !within(desc->Width, most[shape].width) ||
        !within(desc->Height, most[shape].height) || !within(desc->Depth, most[shape].depth)) {
        return false;
    }
    bool gathers = desc->Flags & CUDA_ARRAY3D_TEXTURE_GATHER,
         stores = desc->Flags & CUDA_ARRAY3D_SURFACE_LDST;
    if (gathers && (shape != PLANE || stores)) {
        return false;
    }
    if ((desc->Flags & CUDA_ARRAY3D_SPARSE) && shape != PLANE && shape != VOLUME && shape != PLANES) {
        return false;
    }
    switch (shape) {
    case VOLUME:
        return desc->Height > 0;
    case LINES:
    case PLANES:
        return desc->Depth > 0;
    case CUBE:
        return desc->Width == desc->Height && desc->Depth == 6;
    case CUBES:
        return desc->Width == desc->Height && desc->Depth > 0 && desc->Depth % 6 == 0;
    default:
        return true;
    }
}

CUresult gf_cuArray3DCreate_v2_check(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    struct gf_req_cuArray3DCreate_v2 carried;
    if (handle == NULL || desc == NULL || desc->NumChannels == 3 || !has_a_form(desc)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_encode_CUDA_ARRAY3D_DESCRIPTOR(desc, NULL, carried.pAllocateArray);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_array array = {.width = desc->Width,
                             .height = desc->Height,
                             .depth = desc->Depth,
                             .format = desc->Format,
                             .channels = desc->NumChannels};
    return gf_window_charge(charge_of(&array)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void gf_array_ended(struct gf_object *object) {
    gf_window_refund(charge_of((struct gf_array *)object));
}

CUresult gf_array_create_plane(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc) {
    const CUDA_ARRAY3D_DESCRIPTOR plane = {desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0};
    return gf_cuArray3DCreate_v2(array, &plane);
}

CUresult gf_array_look_up(CUarray handle, uint64_t *wire, uint64_t extents[3], uint64_t *texel) {
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct gf_array *array = gf_array_find(handle);
    if (array == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *wire = (uint64_t)handle;
    *texel = gf_texel_size(array->format, array->channels);
    extents[0] = extent(array->width) * *texel;
    extents[1] = extent(array->height);
    extents[2] = extent(array->depth);
    return CUDA_SUCCESS;
}
