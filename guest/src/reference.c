/* Texture and surface references: variables of modules to which memory and arrays are bound. What is bound is
 * sent and answered, for the device may refuse it; how it is read is known here. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "channel.h"
#include "codecs.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "objects.h"
#include "session.h"
#include "steps.h"

/* How the structs of both kinds begin. */
struct named {
    struct gf_object object;
    char *name;
};

static void *find_named(const struct gf_table *table, uint64_t module, const char *name) {
    for (uint32_t i = 0; i < atomic_load(&table->slots); i++) {
        struct named *object = gf_table_at((struct gf_table *)table, i);
        if (object != NULL && object->object.owner == module && object->name != NULL &&
            strcmp(object->name, name) == 0) {
            return object;
        }
    }
    return NULL;
}

/* A new one, which the server has found in the module. */
static CUresult adopt(struct named *object, uint64_t handle, uint16_t op, struct gf_module *owner,
                      uint64_t module, const char *name) {
    struct gf_req_sessionTextureReference request = {.reference = handle, .module = module};
    struct gf_call call = {.op = op};
    const struct iovec parts[] = {{&request, sizeof request}, {(char *)name, strlen(name)}};
    object->name = strlen(name) <= UINT16_MAX ? strdup(name) : NULL;
    CUresult result = *name == '\0'               ? CUDA_ERROR_INVALID_VALUE
                      : strlen(name) > UINT16_MAX ? CUDA_ERROR_NOT_FOUND
                      : object->name == NULL      ? CUDA_ERROR_OUT_OF_MEMORY
                                                  : gf_call_parts(&call, parts, 2);
    free(call.payload);
    if (result != CUDA_SUCCESS) {
        free(object->name);
        gf_object_discard(object);
        return result;
    }
    gf_object_publish(object, handle, owner);
    return CUDA_SUCCESS;
}

/* A module has one of each name. */
static CUresult of_name(bool surface, struct gf_module *owner, uint64_t module, const char *name,
                        uint64_t *reference) {
    uint16_t op = surface ? GF_OP_sessionSurfaceReference : GF_OP_sessionTextureReference;
    struct named *known = find_named(
        &gf_tables[surface ? GF_HANDLE_SURFACE_REFERENCE : GF_HANDLE_TEXTURE_REFERENCE], module, name);
    if (known != NULL) {
        *reference = atomic_load(&known->object.handle);
        return CUDA_SUCCESS;
    }
    uint64_t handle;
    struct named *made = surface ? (struct named *)gf_surface_reference_new(&handle)
                                 : (struct named *)gf_texture_reference_new(&handle);
    CUresult result = made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : adopt(made, handle, op, owner, module, name);
    if (result == CUDA_SUCCESS) {
        *reference = handle;
    }
    return result;
}

CUresult gf_reference_of_texture(struct gf_module *owner, uint64_t module, const char *name,
                                 CUtexref *reference) {
    return of_name(false, owner, module, name, (uint64_t *)reference);
}

CUresult gf_reference_of_surface(struct gf_module *owner, uint64_t module, const char *name,
                                 CUsurfref *reference) {
    return of_name(true, owner, module, name, (uint64_t *)reference);
}

void gf_texture_reference_ended(struct gf_object *object) {
    free(((struct named *)object)->name);
}

void gf_surface_reference_ended(struct gf_object *object) {
    free(((struct named *)object)->name);
}

static CUresult bind(struct gf_texture_reference *reference, uint64_t handle,
                     const CUDA_RESOURCE_DESC *resource) {
    struct gf_req_sessionTextureBind request = {.reference = handle};
    struct gf_call call = {.op = GF_OP_sessionTextureBind};
    struct gf_bytes behind;
    gf_bytes_begin(&behind);
    CUresult result = gf_append_CUDA_RESOURCE_DESC(&behind, resource, 1, true);
    if (result == CUDA_SUCCESS) {
        result =
            gf_call_parts(&call, (struct iovec[]){{&request, sizeof request}, {behind.data, behind.size}}, 2);
        free(call.payload);
    }
    gf_bytes_end(&behind);
    if (result == CUDA_SUCCESS) {
        reference->array = NULL;
        reference->mipmap = NULL;
        reference->address = 0;
    }
    return result;
}

/* A texel has the format of what is bound. */
static CUresult formatted(struct gf_texture_reference *reference, CUresult result, CUarray_format format,
                          unsigned channels) {
    if (result == CUDA_SUCCESS) {
        reference->format = format;
        reference->channels = (int)channels;
    }
    return result;
}

CUresult gf_reference_bind_array(struct gf_texture_reference *reference, uint64_t handle, CUarray array) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    const struct gf_array *bound = gf_array_find(array);
    if (bound == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    resource.res.array.hArray = array;
    CUresult result = bind(reference, handle, &resource);
    reference->array = result == CUDA_SUCCESS ? array : reference->array;
    return formatted(reference, result, bound->format, bound->channels);
}

CUresult gf_reference_bind_mipmap(struct gf_texture_reference *reference, uint64_t handle,
                                  CUmipmappedArray mipmap) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    const struct gf_mipmapped_array *bound = gf_mipmapped_array_find(mipmap);
    if (bound == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    resource.res.mipmap.hMipmappedArray = mipmap;
    CUresult result = bind(reference, handle, &resource);
    reference->mipmap = result == CUDA_SUCCESS ? mipmap : reference->mipmap;
    return formatted(reference, result, bound->format, bound->channels);
}

CUresult gf_reference_bind_memory(struct gf_texture_reference *reference, uint64_t handle, size_t *offset,
                                  CUdeviceptr address, size_t bytes) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    const uint64_t alignment = (uint64_t)gf_device_here()->attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
    const uint64_t over = address % alignment;
    if (offset == NULL && over > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    resource.res.linear.devPtr = address - over;
    resource.res.linear.format = reference->format;
    resource.res.linear.numChannels = (unsigned)reference->channels;
    resource.res.linear.sizeInBytes = bytes + over;
    CUresult result = bind(reference, handle, address != 0 ? &resource : NULL);
    if (result == CUDA_SUCCESS) {
        reference->address = address - over;
        if (offset != NULL) {
            *offset = over;
        }
    }
    return result;
}

CUresult gf_reference_bind_rows(struct gf_texture_reference *reference, uint64_t handle,
                                const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr address, size_t pitch) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    resource.res.pitch2D.devPtr = address;
    resource.res.pitch2D.format = desc->Format;
    resource.res.pitch2D.numChannels = desc->NumChannels;
    resource.res.pitch2D.width = desc->Width;
    resource.res.pitch2D.height = desc->Height;
    resource.res.pitch2D.pitchInBytes = pitch;
    CUresult result = bind(reference, handle, &resource);
    reference->address = result == CUDA_SUCCESS ? address : reference->address;
    return formatted(reference, result, desc->Format, desc->NumChannels);
}

CUresult gf_reference_border(const struct gf_texture_reference *reference, float colour[4]) {
    memcpy(colour, reference->border, sizeof reference->border);
    return CUDA_SUCCESS;
}
