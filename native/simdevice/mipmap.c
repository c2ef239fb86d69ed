#include "array.h"
#include <stdlib.h>
#include <string.h>

static void destroy(void *object) {
    struct sim_mipmap *mipmap = object;
    for (uint32_t i = 0; i < mipmap->level_count; i++) {
        struct sim_array *level = sim_handle_close(SIM_HANDLE(mipmap->levels[i]), SIM_ARRAY);
        if (level)
            sim_release(level);
    }
    sim_pixels_release(mipmap->pixels);
    free(mipmap);
}

static uint32_t half(uint32_t extent, uint32_t times) {
    return extent >> times ? extent >> times : 1;
}

/* The descriptor and the extents of a level: each is half as large as the one before; layers stay. */
static uint64_t lay_out(struct sim_array *level, const struct sim_array *first, uint32_t number,
                        uint64_t address) {
    *level = *first;
    bool deep = first->shape == SIM_3D;
    level->level.width = half(first->level.width, number);
    level->level.height = half(first->level.height, number);
    level->level.layers = deep ? half(first->level.layers, number) : first->level.layers;
    level->desc.Width = level->level.width;
    level->desc.Height = first->desc.Height ? level->level.height : 0;
    level->desc.Depth = deep ? level->level.layers : first->desc.Depth;
    level->part = true;
    return sim_round_up(sim_level_place(&level->level, &level->texel, address), 512);
}

static CUresult fill(struct sim_mipmap *mipmap, struct sim_context *context, const struct sim_array *first,
                     uint32_t count) {
    uint64_t at = mipmap->pixels->base;
    for (uint32_t i = 0; i < count; i++) {
        struct sim_array level;
        at += lay_out(&level, first, i, at);
        struct sim_array *made = sim_array_over(context, mipmap->pixels, &level);
        if (!made)
            return CUDA_ERROR_OUT_OF_MEMORY;
        mipmap->levels[mipmap->level_count++] = SIM_POINTER(CUarray, made);
    }
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int levels) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out && desc);
    struct sim_array first = {.desc = *desc}, level;
    SIM_TRY(sim_array_check(desc, &levels, &first.texel, &first.shape, &first.level));
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < levels; i++)
        bytes += lay_out(&level, &first, i, 0);
    struct sim_mipmap *mipmap = calloc(1, sizeof *mipmap);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mipmap->desc = *desc;
    CUresult result = sim_pixels_new(context->device, bytes, &mipmap->pixels);
    if (result != CUDA_SUCCESS) {
        free(mipmap);
        return result;
    }
    result = fill(mipmap, context, &first, levels);
    if (result != CUDA_SUCCESS || !sim_handle_open(mipmap, SIM_MIPMAP, context, destroy)) {
        destroy(mipmap);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = SIM_POINTER(CUmipmappedArray, mipmap);
    return CUDA_SUCCESS;
}

static CUresult find(CUmipmappedArray handle, struct sim_mipmap **mipmap) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    *mipmap = sim_acquire(SIM_HANDLE(handle), SIM_MIPMAP);
    return *mipmap ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray handle, unsigned int number) {
    struct sim_mipmap *mipmap;
    SIM_TRY(find(handle, &mipmap));
    bool good = level && number < mipmap->level_count;
    if (good)
        *level = mipmap->levels[number];
    sim_release(mipmap);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    struct sim_mipmap *mipmap;
    SIM_TRY(find(handle, &mipmap));
    sim_device_drain(mipmap->pixels->device);
    bool ours = sim_handle_close(SIM_HANDLE(handle), SIM_MIPMAP) != NULL;
    sim_release(mipmap);
    if (!ours)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_release(mipmap);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                             CUmipmappedArray handle) {
    struct sim_mipmap *mipmap;
    SIM_TRY(find(handle, &mipmap));
    sim_release(mipmap);
    SIM_REQUIRE(properties);
    return CUDA_ERROR_INVALID_VALUE; /* it is not sparse */
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                               CUmipmappedArray handle, CUdevice ordinal) {
    struct sim_mipmap *mipmap;
    SIM_TRY(find(handle, &mipmap));
    sim_release(mipmap);
    SIM_REQUIRE(requirements);
    if (!sim_device_at(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_ERROR_INVALID_VALUE; /* its mapping is not deferred */
}
