/* Mipmapped arrays. A level is an array that ends with the whole; it is made when the program first asks for
 * it. */
#include <pthread.h>

#include "array.h"
#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "steps.h"
#include "window.h"

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static bool is_volume(const struct gf_mipmapped_array *mipmap) {
    return mipmap->depth > 0 && !(mipmap->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP));
}

/* CUDA brings the number that is asked for into the range that the extents allow. */
static unsigned levels_of(const struct gf_mipmapped_array *mipmap) {
    size_t most = mipmap->width > mipmap->height ? mipmap->width : mipmap->height;
    most = is_volume(mipmap) && mipmap->depth > most ? mipmap->depth : most;
    unsigned count = 1;
    while (count < mipmap->levels && most >> count > 0) {
        count++;
    }
    return count;
}

static size_t half(size_t extent, unsigned times) {
    return extent == 0 || extent >> times > 0 ? extent >> times : 1;
}

static void lay_out(const struct gf_mipmapped_array *mipmap, unsigned number, struct gf_array *level) {
    level->width = half(mipmap->width, number);
    level->height = half(mipmap->height, number);
    level->depth = is_volume(mipmap) ? half(mipmap->depth, number) : mipmap->depth;
    level->format = mipmap->format;
    level->channels = mipmap->channels;
    level->flags = mipmap->flags;
    level->part = true;
}

static uint64_t charge_of(const struct gf_mipmapped_array *mipmap) {
    struct gf_array level;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < levels_of(mipmap); i++) {
        lay_out(mipmap, i, &level);
        bytes += gf_array_bytes(&level);
    }
    return gf_array_charge(bytes);
}

CUresult gf_cuMipmappedArrayCreate_check(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                         unsigned levels) {
    if (handle == NULL || desc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_array_check(desc, true);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct gf_mipmapped_array mipmap = {.width = desc->Width,
                                              .height = desc->Height,
                                              .depth = desc->Depth,
                                              .format = desc->Format,
                                              .channels = desc->NumChannels,
                                              .flags = desc->Flags,
                                              .levels = levels};
    return gf_window_charge(gf_device_number(), charge_of(&mipmap)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void gf_mipmapped_array_ended(struct gf_object *object) {
    gf_window_refund(gf_context_device(object->owner), charge_of((struct gf_mipmapped_array *)object));
    gf_window_settle(true);
}

static CUresult make_level(struct gf_mipmapped_array *mipmap, CUmipmappedArray handle, unsigned number) {
    struct gf_req_cuMipmappedArrayGetLevel request = {.hMipmappedArray = (uint64_t)handle, .level = number};
    struct gf_array *level = gf_array_new(&request.pLevelArray);
    if (level == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    lay_out(mipmap, number, level);
    CUresult result = gf_send_struct(GF_OP_cuMipmappedArrayGetLevel, &request);
    if (result != CUDA_SUCCESS) {
        gf_object_discard(level);
        return result;
    }
    gf_object_publish(level, request.pLevelArray, mipmap);
    mipmap->arrays[number] = (CUarray)request.pLevelArray;
    return CUDA_SUCCESS;
}

CUresult gf_cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray handle, unsigned number) {
    struct gf_mipmapped_array *mipmap = gf_mipmapped_array_find(handle);
    if (mipmap == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (level == NULL || number >= levels_of(mipmap)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&making);
    if (mipmap->arrays[number] == NULL) {
        result = make_level(mipmap, handle, number);
    }
    if (result == CUDA_SUCCESS) {
        *level = mipmap->arrays[number];
    }
    pthread_mutex_unlock(&making);
    return result;
}
