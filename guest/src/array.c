#include "array.h"

#include "calls.h"
#include "codecs.h"
#include "context.h"
#include "functions.h"
#include "session.h"
#include "steps.h"
#include "window.h"
#include "wire/texel.h"

#define UNIT (64ull << 10) /* an array counts as a multiple of this; the server reckons likewise */

static uint64_t extent(size_t given) {
    return given > 0 ? given : 1;
}

uint64_t gf_array_bytes(const struct gf_array *array) {
    return gf_texel_bytes(array->format, array->channels) * extent(array->width) * extent(array->height) *
           extent(array->depth);
}

uint64_t gf_array_charge(uint64_t bytes) {
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* The device's largest extents, by shape; 0: there must be none. */
enum shape { LINE, PLANE, VOLUME, LINES, PLANES, CUBE, CUBES, MIPMAPPED_LINE, MIPMAPPED_PLANE };

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
    [MIPMAPPED_LINE] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 0, 0},
    [MIPMAPPED_PLANE] = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
                         CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 0},
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
    return attribute == 0 ? extent == 0 : extent <= (size_t)gf_device_here()->attributes[attribute];
}

static bool has_a_form(const CUDA_ARRAY3D_DESCRIPTOR *desc, bool mipmapped) {
    enum shape shape = shape_of(desc), limits = mipmapped && shape <= PLANE ? MIPMAPPED_LINE + shape : shape;
    if (desc->Width == 0 || !within(desc->Width, most[limits].width) ||
        !within(desc->Height, most[limits].height) || !within(desc->Depth, most[limits].depth)) {
        return false;
    }
    if ((desc->Flags & CUDA_ARRAY3D_TEXTURE_GATHER) && shape != PLANE) {
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

CUdevice gf_array_device(CUarray handle) {
    const struct gf_array *array = gf_array_find(handle);
    uint64_t owner = array == NULL ? 0 : array->object.owner;
    const struct gf_mipmapped_array *whole = gf_mipmapped_array_find((CUmipmappedArray)owner);
    return gf_context_device(whole == NULL ? owner : whole->object.owner);
}

CUresult gf_array_check(const CUDA_ARRAY3D_DESCRIPTOR *desc, bool mipmapped) {
    char carried[sizeof *desc];
    if (!has_a_form(desc, mipmapped)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_encode_CUDA_ARRAY3D_DESCRIPTOR(desc, NULL, carried);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return gf_texel_bytes(desc->Format, desc->NumChannels) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_cuArray3DCreate_v2_check(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    if (handle == NULL || desc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_array_check(desc, false);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct gf_array array = {.width = desc->Width,
                                   .height = desc->Height,
                                   .depth = desc->Depth,
                                   .format = desc->Format,
                                   .channels = desc->NumChannels};
    return gf_window_charge(gf_device_number(), gf_array_charge(gf_array_bytes(&array)))
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

void gf_array_ended(struct gf_object *object) {
    const struct gf_array *array = (struct gf_array *)object;
    if (!array->part) {
        gf_window_refund(gf_context_device(array->object.owner), gf_array_charge(gf_array_bytes(array)));
        gf_window_settle(true);
    }
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
    *texel = gf_texel_bytes(array->format, array->channels);
    extents[0] = extent(array->width) * *texel;
    extents[1] = extent(array->height);
    extents[2] = extent(array->depth);
    return CUDA_SUCCESS;
}
