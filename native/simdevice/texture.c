#include "texture.h"
#include "array.h"
#include "variance.h"
#include <pthread.h>
#include <stdlib.h>

struct sim_record {
    struct sim_context *context;
    struct sim_record *previous, *next; /* of its context */
    uint32_t number;
    enum sim_view_kind kind;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC part; /* zero: there is none */
};

static struct sim_record
    *records[SIM_MOST_VIEWS]; /* by the view's number, which behind the base is the object */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t sim_textures_base(const struct sim_device *device) {
    enum { OF_A_DEVICE = SIM_MOST_VIEWS / 16 };
    return sim_choice(SIM_OPEN_OBJECTS, 2) ? (uint32_t)device->ordinal * OF_A_DEVICE : 0;
}

static CUresult keep(const struct sim_record *record, const struct sim_view *view,
                     unsigned long long *object) {
    struct sim_record *copy = malloc(sizeof *copy);
    pthread_mutex_lock(&lock);
    uint32_t base = sim_textures_base(record->context->device);
    uint32_t number = copy ? sim_view_publish(view, base) : 0;
    if (number) {
        *copy = *record;
        copy->number = number;
        copy->next = record->context->records;
        if (copy->next)
            copy->next->previous = copy;
        record->context->records = copy;
        records[number] = copy;
        *object = number - base;
    }
    pthread_mutex_unlock(&lock);
    if (!number)
        free(copy);
    return number ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Under the lock. */
static struct sim_record *find(const struct sim_context *context, unsigned long long object,
                               enum sim_view_kind kind) {
    uint32_t base = sim_textures_base(context->device);
    struct sim_record *record = object < SIM_MOST_VIEWS - base ? records[base + object] : NULL;
    return record && record->kind == kind ? record : NULL;
}

static void end(struct sim_record *record) {
    sim_view_withdraw(record->number);
    records[record->number] = NULL;
    if (record->next)
        record->next->previous = record->previous;
    *(record->previous ? &record->previous->next : &record->context->records) = record->next;
    free(record);
}

void sim_textures_forget_context(struct sim_context *context) {
    pthread_mutex_lock(&lock);
    while (context->records)
        end(context->records);
    pthread_mutex_unlock(&lock);
}

CUresult cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *part) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(object && resource && texture);
    SIM_REQUIRE(resource->resType != CU_RESOURCE_TYPE_ARRAY || resource->res.array.hArray);
    SIM_REQUIRE(resource->resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY ||
                resource->res.mipmap.hMipmappedArray);
    struct sim_view view = {.kind = SIM_VIEW_TEXTURE};
    SIM_TRY(sim_view_of_resource(resource, &view));
    SIM_TRY(sim_view_narrow(resource, part, &view));
    SIM_TRY(sim_sampler_of(texture, &view, &view.sampler));
    struct sim_record record = {
        .context = context, .kind = SIM_VIEW_TEXTURE, .resource = *resource, .texture = *texture};
    if (part)
        record.part = *part;
    return keep(&record, &view, object);
}

CUresult cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(object && resource && resource->resType == CU_RESOURCE_TYPE_ARRAY);
    struct sim_array *array = sim_acquire(SIM_HANDLE(resource->res.array.hArray), SIM_ARRAY);
    SIM_REQUIRE(resource->res.array.hArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_release(array); /* whatever its flags: SURFACE_LDST is asked of references alone */
    struct sim_view view = {.kind = SIM_VIEW_SURFACE};
    SIM_TRY(sim_view_of_resource(resource, &view));
    const struct sim_record record = {.context = context, .kind = SIM_VIEW_SURFACE, .resource = *resource};
    return keep(&record, &view, object);
}

static CUresult destroy(unsigned long long object, enum sim_view_kind kind) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    pthread_mutex_lock(&lock);
    struct sim_record *record = find(context, object, kind);
    if (record)
        end(record);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS; /* whatever it named */
}

CUresult cuTexObjectDestroy(CUtexObject object) {
    return destroy(object, SIM_VIEW_TEXTURE);
}

CUresult cuSurfObjectDestroy(CUsurfObject object) {
    return destroy(object, SIM_VIEW_SURFACE);
}

static CUresult look(unsigned long long object, enum sim_view_kind kind, struct sim_record *copy) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    pthread_mutex_lock(&lock);
    const struct sim_record *record = find(context, object, kind);
    if (record)
        *copy = *record;
    pthread_mutex_unlock(&lock);
    return record ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *desc, CUtexObject object) {
    struct sim_record record;
    SIM_TRY(look(object, SIM_VIEW_TEXTURE, &record));
    SIM_REQUIRE(desc);
    *desc = record.resource;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *desc, CUsurfObject object) {
    struct sim_record record;
    SIM_TRY(look(object, SIM_VIEW_SURFACE, &record));
    SIM_REQUIRE(desc);
    *desc = record.resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *desc, CUtexObject object) {
    struct sim_record record;
    SIM_TRY(look(object, SIM_VIEW_TEXTURE, &record));
    SIM_REQUIRE(desc);
    *desc = record.texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *desc, CUtexObject object) {
    struct sim_record record;
    SIM_TRY(look(object, SIM_VIEW_TEXTURE, &record));
    SIM_REQUIRE(desc);
    *desc = record.part;
    return CUDA_SUCCESS;
}
