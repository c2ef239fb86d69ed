#include "array.h"
#include "memory.h"
#include <stdlib.h>
#include <string.h>

uint64_t sim_level_place(struct sim_level *level, const struct sim_texel *texel, uint64_t address) {
    level->address = address;
    level->pitch = (uint64_t)level->width * texel->bytes * texel->channels;
    level->slice = level->pitch * level->height;
    return level->slice * level->layers;
}

CUresult sim_pixels_new(struct sim_device *device, uint64_t bytes, struct sim_pixels **out) {
    bytes = sim_round_up(bytes, SIM_PAGE);
    struct sim_pixels *pixels = calloc(1, sizeof *pixels);
    bool charged = pixels && bytes <= device->memory && sim_device_charge(device, bytes);
    uint64_t base = charged ? sim_pages_new(bytes) : 0;
    if (!base) {
        if (charged)
            sim_device_refund(device, bytes);
        free(pixels);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pixels = (struct sim_pixels){1, device, base, bytes};
    *out = pixels;
    return CUDA_SUCCESS;
}

void sim_pixels_release(struct sim_pixels *pixels) {
    if (atomic_fetch_sub(&pixels->references, 1) != 1)
        return;
    sim_pages_free(pixels->base, pixels->bytes);
    sim_device_refund(pixels->device, pixels->bytes);
    free(pixels);
}

static void destroy(void *object) {
    struct sim_array *array = object;
    sim_pixels_release(array->pixels);
    free(array);
}

struct sim_array *sim_array_over(struct sim_context *context, struct sim_pixels *pixels,
                                 const struct sim_array *like) {
    struct sim_array *array = malloc(sizeof *array);
    if (!array)
        return NULL;
    *array = *like;
    array->pixels = pixels;
    if (!sim_handle_open(array, SIM_ARRAY, context, destroy)) {
        free(array);
        return NULL;
    }
    atomic_fetch_add(&pixels->references, 1);
    return array;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out && desc);
    struct sim_array array = {.desc = *desc};
    SIM_TRY(sim_array_check(desc, NULL, &array.texel, &array.shape, &array.level));
    uint64_t bytes = sim_level_place(&array.level, &array.texel, 0);
    struct sim_pixels *pixels;
    SIM_TRY(sim_pixels_new(context->device, bytes, &pixels));
    array.level.address = pixels->base;
    struct sim_array *made = sim_array_over(context, pixels, &array);
    sim_pixels_release(pixels);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = SIM_POINTER(CUarray, made);
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    return create(array, desc);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc) {
    if (!desc)
        return create(array, NULL);
    const CUDA_ARRAY3D_DESCRIPTOR wide = {desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0};
    return create(array, &wide);
}

static CUresult find(CUarray handle, struct sim_array **array) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    *array = sim_acquire(SIM_HANDLE(handle), SIM_ARRAY);
    return *array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray handle) {
    struct sim_array *array;
    SIM_TRY(find(handle, &array));
    if (desc)
        *desc = array->desc;
    sim_release(array);
    return desc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray handle) {
    CUDA_ARRAY3D_DESCRIPTOR wide;
    SIM_TRY(cuArray3DGetDescriptor_v2(desc ? &wide : NULL, handle));
    *desc = (CUDA_ARRAY_DESCRIPTOR){wide.Width, wide.Height, wide.Format, wide.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
    struct sim_array *array;
    SIM_TRY(find(handle, &array));
    bool part = array->part;
    struct sim_device *device = array->pixels->device;
    sim_release(array);
    SIM_REQUIRE(!part);
    sim_device_drain(device); /* work under way may use it */
    array = sim_handle_close(SIM_HANDLE(handle), SIM_ARRAY);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_release(array);
    return CUDA_SUCCESS;
}

/* The formats that are carried have one plane. */
CUresult cuArrayGetPlane(CUarray *plane, CUarray handle, unsigned int index) {
    struct sim_array *array;
    SIM_TRY(find(handle, &array));
    sim_release(array);
    (void)index;
    SIM_REQUIRE(plane);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray handle) {
    struct sim_array *array;
    SIM_TRY(find(handle, &array));
    sim_release(array);
    SIM_REQUIRE(properties);
    return CUDA_ERROR_INVALID_VALUE; /* it is not sparse */
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle,
                                      CUdevice ordinal) {
    struct sim_array *array;
    SIM_TRY(find(handle, &array));
    sim_release(array);
    SIM_REQUIRE(requirements);
    if (!sim_device_at(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_ERROR_INVALID_VALUE; /* its mapping is not deferred */
}
