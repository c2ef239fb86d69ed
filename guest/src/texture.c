/* Texture and surface objects. The program passes their numbers to its kernels, so they are the driver's own,
 * and what an object is here is found by its number. */
#include <string.h>

#include "calls.h"
#include "channel.h"
#include "codecs.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "objects.h"
#include "session.h"
#include "wire/texel.h"

/* A driver may number the objects of each context from 1: then the current one's is meant. `found`: what was,
 * or NULL. */
static bool is_nearer(const struct gf_object *object, const void *found) {
    return found == NULL || object->owner == gf_context_current_handle();
}

static struct gf_texture_object *texture_of(CUtexObject value) {
    struct gf_table *table = &gf_tables[GF_HANDLE_TEXTURE_OBJECT];
    struct gf_texture_object *found = NULL;
    for (uint32_t i = 0; i < atomic_load(&table->slots); i++) {
        struct gf_texture_object *object = gf_table_at(table, i);
        if (object != NULL && object->value == value && is_nearer(&object->object, found)) {
            found = object;
        }
    }
    return found;
}

static struct gf_surface_object *surface_of(CUsurfObject value) {
    struct gf_table *table = &gf_tables[GF_HANDLE_SURFACE_OBJECT];
    struct gf_surface_object *found = NULL;
    for (uint32_t i = 0; i < atomic_load(&table->slots); i++) {
        struct gf_surface_object *object = gf_table_at(table, i);
        if (object != NULL && object->value == value && is_nearer(&object->object, found)) {
            found = object;
        }
    }
    return found;
}

CUresult gf_texture_line_width(CUarray_format format, unsigned channels, size_t *width) {
    if (gf_texel_bytes(format, channels) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *width = (size_t)gf_device_here()->attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
    return CUDA_SUCCESS;
}

static bool names_none(const CUDA_RESOURCE_DESC *resource) {
    return (resource->resType == CU_RESOURCE_TYPE_ARRAY && resource->res.array.hArray == NULL) ||
           (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
            resource->res.mipmap.hMipmappedArray == NULL);
}

CUresult gf_texture_create(CUtexObject *value, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *part) {
    if (names_none(resource)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct gf_req_sessionTextureCreate request = {.wanted = 0};
    struct gf_bytes behind;
    gf_bytes_begin(&behind);
    CUresult result = gf_encode_CUDA_RESOURCE_DESC(resource, &behind, request.resource);
    result = result == CUDA_SUCCESS ? gf_encode_CUDA_TEXTURE_DESC(texture, &behind, request.texture) : result;
    result = result == CUDA_SUCCESS ? gf_append_CUDA_RESOURCE_VIEW_DESC(&behind, part, 1, true) : result;
    struct gf_texture_object *object = result == CUDA_SUCCESS ? gf_texture_object_new(&request.object) : NULL;
    if (object == NULL) {
        gf_bytes_end(&behind);
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    struct gf_rep_sessionTextureCreate reply;
    struct gf_call call = {.op = GF_OP_sessionTextureCreate, .reply = &reply, .reply_size = sizeof reply};
    result =
        gf_call_parts(&call, (struct iovec[]){{&request, sizeof request}, {behind.data, behind.size}}, 2);
    gf_bytes_end(&behind);
    if (result != CUDA_SUCCESS) {
        if (call.done && call.status == CUDA_SUCCESS) {
            gf_send_struct(GF_OP_cuTexObjectDestroy,
                           &(struct gf_req_cuTexObjectDestroy){.texObject = request.object});
        }
        gf_object_discard(object);
        return result;
    }
    object->value = reply.value;
    object->resource = *resource;
    object->texture = *texture;
    if (part != NULL) {
        object->part = *part;
    }
    gf_object_publish(object, request.object, gf_context_current());
    *value = reply.value;
    return CUDA_SUCCESS;
}

CUresult gf_surface_create(CUsurfObject *value, const CUDA_RESOURCE_DESC *resource) {
    struct gf_req_sessionSurfaceCreate request = {.wanted = 0};
    if (resource->resType != CU_RESOURCE_TYPE_ARRAY || names_none(resource)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_encode_CUDA_RESOURCE_DESC(resource, NULL, request.resource);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (gf_array_find(resource->res.array.hArray) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct gf_surface_object *object = gf_surface_object_new(&request.object);
    if (object == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct gf_rep_sessionSurfaceCreate reply;
    struct gf_call call = {.op = GF_OP_sessionSurfaceCreate, .reply = &reply, .reply_size = sizeof reply};
    result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    if (result != CUDA_SUCCESS) {
        if (call.done && call.status == CUDA_SUCCESS) {
            gf_send_struct(GF_OP_cuSurfObjectDestroy,
                           &(struct gf_req_cuSurfObjectDestroy){.surfObject = request.object});
        }
        gf_object_discard(object);
        return result;
    }
    object->value = reply.value;
    object->resource = *resource;
    gf_object_publish(object, request.object, gf_context_current());
    *value = reply.value;
    return CUDA_SUCCESS;
}

/* It ends where its number is one. */
static uint32_t enter(const struct gf_object *object) {
    uint32_t before = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(object->owner) + 1;
    return before;
}

/* NVIDIA's driver does not say that there was no such object. */
CUresult gf_cuTexObjectDestroy(CUtexObject value) {
    struct gf_texture_object *object = texture_of(value);
    uint64_t wire = object != NULL ? atomic_load(&object->object.handle) : 0;
    struct gf_object *ended = object != NULL ? gf_object_end(object, wire) : NULL;
    if (ended == NULL) {
        return CUDA_SUCCESS;
    }
    uint32_t before = enter(ended);
    CUresult result =
        gf_send_struct(GF_OP_cuTexObjectDestroy, &(struct gf_req_cuTexObjectDestroy){.texObject = wire});
    gf_thread.context_id = before;
    gf_objects_release(ended);
    return result;
}

CUresult gf_cuSurfObjectDestroy(CUsurfObject value) {
    struct gf_surface_object *object = surface_of(value);
    uint64_t wire = object != NULL ? atomic_load(&object->object.handle) : 0;
    struct gf_object *ended = object != NULL ? gf_object_end(object, wire) : NULL;
    if (ended == NULL) {
        return CUDA_SUCCESS;
    }
    uint32_t before = enter(ended);
    CUresult result =
        gf_send_struct(GF_OP_cuSurfObjectDestroy, &(struct gf_req_cuSurfObjectDestroy){.surfObject = wire});
    gf_thread.context_id = before;
    gf_objects_release(ended);
    return result;
}

CUresult gf_texture_resource(CUtexObject value, CUDA_RESOURCE_DESC *resource) {
    const struct gf_texture_object *object = texture_of(value);
    if (object == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *resource = object->resource;
    return CUDA_SUCCESS;
}

CUresult gf_texture_sampler(CUtexObject value, CUDA_TEXTURE_DESC *texture) {
    const struct gf_texture_object *object = texture_of(value);
    if (object == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *texture = object->texture;
    return CUDA_SUCCESS;
}

CUresult gf_texture_part(CUtexObject value, CUDA_RESOURCE_VIEW_DESC *part) {
    const struct gf_texture_object *object = texture_of(value);
    if (object == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *part = object->part;
    return CUDA_SUCCESS;
}

CUresult gf_surface_resource(CUsurfObject value, CUDA_RESOURCE_DESC *resource) {
    const struct gf_surface_object *object = surface_of(value);
    if (object == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *resource = object->resource;
    return CUDA_SUCCESS;
}
