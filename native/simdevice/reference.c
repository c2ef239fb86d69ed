#include "reference.h"
#include "array.h"
#include "memory.h"
#include "texture.h"
#include <stdlib.h>
#include <string.h>

struct sim_reference {
    struct sim_object object;
    const uint8_t *variable; /* NULL: made by cuTexRefCreate */
    enum sim_view_kind kind;
    bool bound;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampler;
    CUarray_format format;
    int channels;
    struct sim_view *view; /* of what is bound, made when a launch needs it; launches share it */
    struct sim_reference *next;
};

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of all that references hold, and of modules' lists */

/* A view that launches share: it counts them in front of it. */
struct shared_view {
    _Atomic uint32_t users;
    struct sim_view view;
};

static struct shared_view *shared(struct sim_view *view) {
    return (struct shared_view *)((char *)view - offsetof(struct shared_view, view));
}

static void release_view(struct sim_view *view) {
    if (view && atomic_fetch_sub(&shared(view)->users, 1) == 1)
        free(shared(view));
}

static void destroy(void *object) {
    struct sim_reference *reference = object;
    release_view(reference->view);
    free(reference);
}

static struct sim_reference *make(struct sim_context *context, enum sim_view_kind kind) {
    struct sim_reference *reference = calloc(1, sizeof *reference);
    if (!reference)
        return NULL;
    reference->kind = kind;
    reference->format = CU_AD_FORMAT_FLOAT;
    reference->channels = 1;
    if (!sim_handle_open(reference, SIM_TEXREF, context, destroy)) {
        free(reference);
        return NULL;
    }
    return reference;
}

/* The reference of a handle, under the lock; `leave` gives both back. */
static CUresult enter(const void *handle, enum sim_view_kind kind, struct sim_reference **reference) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    *reference = sim_acquire(SIM_HANDLE(handle), SIM_TEXREF);
    if (!*reference)
        return CUDA_ERROR_INVALID_HANDLE;
    if ((*reference)->kind != kind) {
        sim_release(*reference);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&lock);
    return CUDA_SUCCESS;
}

static CUresult leave(struct sim_reference *reference, CUresult result) {
    pthread_mutex_unlock(&lock);
    sim_release(reference);
    return result;
}

/* The next launch looks anew at what is bound, and how it is to be read. */
static CUresult changed(struct sim_reference *reference) {
    release_view(reference->view);
    reference->view = NULL;
    return leave(reference, CUDA_SUCCESS);
}

static CUresult look(struct sim_reference *reference, struct sim_view *view) {
    CUDA_RESOURCE_DESC resource = reference->resource;
    if (resource.resType == CU_RESOURCE_TYPE_LINEAR) { /* its format may have been set since */
        resource.res.linear.format = reference->format;
        resource.res.linear.numChannels = (unsigned)reference->channels;
    }
    *view = (struct sim_view){.kind = reference->kind};
    SIM_TRY(sim_view_of_resource(&resource, view));
    return reference->kind == SIM_VIEW_SURFACE ? CUDA_SUCCESS
                                               : sim_sampler_of(&reference->sampler, view, &view->sampler);
}

/* A reference to which nothing is bound, or nothing that is still there, is not taken along: a kernel that
 * reads through it fails. */
static CUresult take(struct sim_reference *reference, struct sim_bound *bound) {
    struct sim_view view;
    *bound = (struct sim_bound){.variable = (uint64_t)reference->variable};
    if (!reference->bound || (!reference->view && look(reference, &view) != CUDA_SUCCESS))
        return CUDA_SUCCESS;
    if (!reference->view) {
        struct shared_view *made = malloc(sizeof *made);
        if (!made)
            return CUDA_ERROR_OUT_OF_MEMORY;
        atomic_init(&made->users, 1);
        made->view = view;
        reference->view = &made->view;
    }
    atomic_fetch_add(&shared(reference->view)->users, 1);
    bound->view = reference->view;
    return CUDA_SUCCESS;
}

CUresult sim_references_take(struct sim_module *module, struct sim_bound **bound, uint32_t *count) {
    CUresult result = CUDA_SUCCESS;
    uint32_t taken = 0, all = 0;
    *bound = NULL;
    *count = 0;
    pthread_mutex_lock(&lock);
    for (struct sim_reference *each = module->references; each; each = each->next)
        all++;
    if (all > 0 && !(*bound = calloc(all, sizeof **bound)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (struct sim_reference *each = module->references; each && result == CUDA_SUCCESS; each = each->next)
        result = take(each, &(*bound)[taken++]);
    pthread_mutex_unlock(&lock);
    *count = *bound ? taken : 0;
    if (result != CUDA_SUCCESS)
        sim_references_release(*bound, *count);
    return result;
}

void sim_references_release(struct sim_bound *bound, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        release_view((struct sim_view *)bound[i].view);
    free(bound);
}

void sim_references_close(struct sim_module *module) {
    pthread_mutex_lock(&lock);
    struct sim_reference *first = module->references;
    module->references = NULL;
    pthread_mutex_unlock(&lock);
    while (first) {
        struct sim_reference *next = first->next;
        if (sim_handle_close(first->object.handle, SIM_TEXREF))
            sim_release(first);
        first = next;
    }
}

CUresult sim_reference_of(struct sim_module *module, const uint8_t *variable, enum sim_view_kind kind,
                          uint64_t *handle) {
    pthread_mutex_lock(&lock);
    struct sim_reference *found = module->references;
    while (found && found->variable != variable)
        found = found->next;
    if (!found && (found = make(module->context, kind))) {
        found->variable = variable;
        found->next = module->references;
        module->references = found;
    }
    if (found)
        *handle = found->object.handle;
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuTexRefCreate(CUtexref *handle) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(handle);
    struct sim_reference *reference = make(context, SIM_VIEW_TEXTURE);
    if (!reference)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = SIM_POINTER(CUtexref, reference);
    return CUDA_SUCCESS;
}

CUresult cuTexRefDestroy(CUtexref handle) {
    struct sim_reference *reference;
    SIM_TRY(enter(handle, SIM_VIEW_TEXTURE, &reference));
    bool own = !reference->variable && sim_handle_close(SIM_HANDLE(handle), SIM_TEXREF);
    leave(reference, CUDA_SUCCESS);
    SIM_REQUIRE(own); /* a module's ends with the module */
    sim_release(reference);
    return CUDA_SUCCESS;
}

/* What the reference of a handle reads from here on; without a resource nothing is bound. */
static CUresult bind(CUtexref handle, bool valid, const CUDA_RESOURCE_DESC *resource) {
    struct sim_reference *reference;
    struct sim_view view = {.kind = SIM_VIEW_TEXTURE};
    SIM_TRY(enter(handle, SIM_VIEW_TEXTURE, &reference));
    CUresult result = !valid     ? CUDA_ERROR_INVALID_VALUE
                      : resource ? sim_view_of_resource(resource, &view)
                                 : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return leave(reference, result);
    reference->bound = resource;
    if (resource) {
        reference->resource = *resource;
        reference->format = view.format;
        reference->channels = view.texel.channels;
    }
    return changed(reference);
}

CUresult cuTexRefSetArray(CUtexref handle, CUarray array, unsigned int flags) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    return bind(handle, flags == CU_TRSA_OVERRIDE_FORMAT, &resource);
}

CUresult cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray mipmap, unsigned int flags) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    resource.res.mipmap.hMipmappedArray = mipmap;
    return bind(handle, flags == CU_TRSA_OVERRIDE_FORMAT, &resource);
}

static CUresult format_of(CUtexref handle, CUarray_format *format, int *channels) {
    struct sim_reference *reference;
    SIM_TRY(enter(handle, SIM_VIEW_TEXTURE, &reference));
    *format = reference->format;
    *channels = reference->channels;
    return leave(reference, CUDA_SUCCESS);
}

/* Memory that does not begin where hardware wants it is bound from before its beginning. */
CUresult cuTexRefSetAddress_v2(size_t *offset, CUtexref handle, CUdeviceptr address, size_t bytes) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    int channels;
    size_t over = address % SIM_TEXTURE_ALIGNMENT;
    SIM_TRY(format_of(handle, &resource.res.linear.format, &channels));
    SIM_REQUIRE(offset || over == 0);
    resource.res.linear.devPtr = address - over;
    resource.res.linear.numChannels = (unsigned)channels;
    resource.res.linear.sizeInBytes = bytes + over;
    SIM_TRY(bind(handle, true, address ? &resource : NULL));
    if (offset)
        *offset = over;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr address,
                                 size_t pitch) {
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    if (!desc)
        return bind(handle, false, NULL);
    resource.res.pitch2D.devPtr = address;
    resource.res.pitch2D.format = desc->Format;
    resource.res.pitch2D.numChannels = desc->NumChannels;
    resource.res.pitch2D.width = desc->Width;
    resource.res.pitch2D.height = desc->Height;
    resource.res.pitch2D.pitchInBytes = pitch;
    return bind(handle, true, &resource);
}

#define SET(handle, check, what)                                                                             \
    struct sim_reference *r;                                                                                 \
    SIM_TRY(enter(handle, SIM_VIEW_TEXTURE, &r));                                                            \
    if (!(check))                                                                                            \
        return leave(r, CUDA_ERROR_INVALID_VALUE);                                                           \
    what;                                                                                                    \
    return changed(r)

#define GET(handle, check, what)                                                                             \
    struct sim_reference *r;                                                                                 \
    SIM_TRY(enter(handle, SIM_VIEW_TEXTURE, &r));                                                            \
    if (!(check))                                                                                            \
        return leave(r, CUDA_ERROR_INVALID_VALUE);                                                           \
    what;                                                                                                    \
    return leave(r, CUDA_SUCCESS)

static bool binds(const struct sim_reference *reference, CUresourcetype type) {
    return reference->bound && reference->resource.resType == type;
}

CUresult cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels) {
    struct sim_texel texel;
    SET(handle, sim_texel_of(format, (unsigned)channels, &texel), {
        r->format = format;
        r->channels = channels;
    });
}

CUresult cuTexRefSetAddressMode(CUtexref handle, int dim, CUaddress_mode mode) {
    SET(handle, dim >= 0 && dim < 3 && mode <= CU_TR_ADDRESS_MODE_BORDER, r->sampler.addressMode[dim] = mode);
}

CUresult cuTexRefSetFilterMode(CUtexref handle, CUfilter_mode mode) {
    SET(handle, mode <= CU_TR_FILTER_MODE_LINEAR, r->sampler.filterMode = mode);
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref handle, CUfilter_mode mode) {
    SET(handle, mode <= CU_TR_FILTER_MODE_LINEAR, r->sampler.mipmapFilterMode = mode);
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref handle, float bias) {
    SET(handle, true, r->sampler.mipmapLevelBias = bias);
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref handle, float least, float most) {
    SET(handle, true, {
        r->sampler.minMipmapLevelClamp = least;
        r->sampler.maxMipmapLevelClamp = most;
    });
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref handle, unsigned int most) {
    SET(handle, true, r->sampler.maxAnisotropy = most);
}

CUresult cuTexRefSetBorderColor(CUtexref handle, float *colour) {
    SET(handle, colour, memcpy(r->sampler.borderColor, colour, sizeof r->sampler.borderColor));
}

CUresult cuTexRefSetFlags(CUtexref handle, unsigned int flags) {
    const unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                           CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
    SET(handle, !(flags & ~known), r->sampler.flags = flags);
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr *address, CUtexref handle) {
    GET(handle, address && (binds(r, CU_RESOURCE_TYPE_LINEAR) || binds(r, CU_RESOURCE_TYPE_PITCH2D)),
        *address = binds(r, CU_RESOURCE_TYPE_LINEAR) ? r->resource.res.linear.devPtr
                                                     : r->resource.res.pitch2D.devPtr);
}

CUresult cuTexRefGetArray(CUarray *array, CUtexref handle) {
    GET(handle, array && binds(r, CU_RESOURCE_TYPE_ARRAY), *array = r->resource.res.array.hArray);
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *mipmap, CUtexref handle) {
    GET(handle, mipmap && binds(r, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY),
        *mipmap = r->resource.res.mipmap.hMipmappedArray);
}

CUresult cuTexRefGetAddressMode(CUaddress_mode *mode, CUtexref handle, int dim) {
    GET(handle, mode && dim >= 0 && dim < 3, *mode = r->sampler.addressMode[dim]);
}

CUresult cuTexRefGetFilterMode(CUfilter_mode *mode, CUtexref handle) {
    GET(handle, mode, *mode = r->sampler.filterMode);
}

CUresult cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref handle) {
    return format && channels ? format_of(handle, format, channels) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode *mode, CUtexref handle) {
    GET(handle, mode, *mode = r->sampler.mipmapFilterMode);
}

CUresult cuTexRefGetMipmapLevelBias(float *bias, CUtexref handle) {
    GET(handle, bias, *bias = r->sampler.mipmapLevelBias);
}

CUresult cuTexRefGetMipmapLevelClamp(float *least, float *most, CUtexref handle) {
    GET(handle, least && most, {
        *least = r->sampler.minMipmapLevelClamp;
        *most = r->sampler.maxMipmapLevelClamp;
    });
}

CUresult cuTexRefGetMaxAnisotropy(int *most, CUtexref handle) {
    GET(handle, most, *most = (int)r->sampler.maxAnisotropy);
}

CUresult cuTexRefGetBorderColor(float *colour, CUtexref handle) {
    GET(handle, colour, memcpy(colour, r->sampler.borderColor, sizeof r->sampler.borderColor));
}

CUresult cuTexRefGetFlags(unsigned int *flags, CUtexref handle) {
    GET(handle, flags, *flags = r->sampler.flags);
}

CUresult sim_reference_check(CUtexref handle) {
    struct sim_reference *reference;
    SIM_TRY(enter(handle, SIM_VIEW_TEXTURE, &reference));
    return leave(reference, CUDA_SUCCESS);
}

CUresult cuSurfRefSetArray(CUsurfref handle, CUarray given, unsigned int flags) {
    struct sim_reference *reference;
    SIM_TRY(enter(handle, SIM_VIEW_SURFACE, &reference));
    struct sim_array *array = sim_acquire(SIM_HANDLE(given), SIM_ARRAY);
    if (!array)
        return leave(reference, CUDA_ERROR_INVALID_HANDLE);
    bool good = array->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST && flags == 0;
    sim_release(array);
    if (!good)
        return leave(reference, CUDA_ERROR_INVALID_VALUE);
    reference->bound = true;
    reference->resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY};
    reference->resource.res.array.hArray = given;
    return changed(reference);
}

CUresult cuSurfRefGetArray(CUarray *array, CUsurfref handle) {
    struct sim_reference *reference;
    SIM_TRY(enter(handle, SIM_VIEW_SURFACE, &reference));
    bool good = array && reference->bound;
    if (good)
        *array = reference->resource.res.array.hArray;
    return leave(reference, good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
