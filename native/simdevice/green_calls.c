/* The calls about green contexts, and about events of all that a context was given. */
#include "green.h"
#include "capture.h"
#include "card.h"
#include "event.h"
#include "stream.h"
#include "thread.h"
#include <stdlib.h>

#define DRIVER(name) name
#define ENTER        SIM_TRY(sim_enter())

static bool facts(CUdevice ordinal, unsigned *multiprocessors, int *major) {
    *multiprocessors = sim_multiprocessors();
    *major = sim_config_get()->cc_major;
    return sim_device_at(ordinal) != NULL;
}

#include "driver_interop/device_resource.c.h"

static _Atomic uint64_t next_id = UINT64_C(1) << 32; /* none that a context has */

static void keep(void *green) {
    (void)green; /* never freed, see green.h */
}

/* Under either of its names: NVIDIA's runtime asks by the one that cuCtxFromGreenCtx gives. It is never
 * freed, see green.h. */
static struct sim_green *named(CUgreenCtx handle) {
    const struct sim_context *name = sim_context_named((CUcontext)handle);
    if (name)
        return name->green;
    struct sim_green *green = sim_acquire(SIM_HANDLE(handle), SIM_GREEN);
    if (green)
        sim_release(green);
    return green;
}

static CUresult find(CUgreenCtx handle, struct sim_green **green) {
    SIM_TRY(sim_enter());
    *green = named(handle);
    return *green ? sim_context_check((*green)->primary) : CUDA_ERROR_INVALID_CONTEXT;
}

static struct sim_green *green_new(struct sim_context *primary, const struct gf_resources *resources) {
    struct sim_green *green = calloc(1, sizeof *green);
    struct sim_context *name = calloc(1, sizeof *name);
    if (!green || !name || !sim_handle_open(name, SIM_CONTEXT, NULL, keep)) {
        free(green);
        free(name);
        return NULL;
    }
    name->green = green;
    name->device = primary->device;
    *green = (struct sim_green){.primary = primary,
                                .name = name,
                                .id = atomic_fetch_add(&next_id, 1),
                                .resources = *resources,
                                .multiprocessors = count_of(&resources->which)};
    if (!sim_handle_open(green, SIM_GREEN, NULL, keep)) {
        sim_release(sim_handle_close(name->object.handle, SIM_CONTEXT));
        return NULL;
    }
    sim_green_keep(green);
    return green;
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice ordinal, unsigned int flags) {
    SIM_TRY(sim_enter());
    const struct gf_resources *resources = resources_of(desc);
    CUcontext primary;
    SIM_REQUIRE(out && resources && !(flags & ~(unsigned)CU_GREEN_CTX_DEFAULT_STREAM));
    if (!sim_device_at(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_REQUIRE(resources->device == ordinal);
    SIM_TRY(cuDevicePrimaryCtxRetain(&primary, ordinal));
    struct sim_green *green = green_new(sim_context_of(primary), resources);
    if (!green) {
        cuDevicePrimaryCtxRelease_v2(ordinal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = SIM_POINTER(CUgreenCtx, green);
    return CUDA_SUCCESS;
}

static void forget_capture(void *stream_, void *green) {
    struct sim_stream *stream = stream_;
    if (stream->green == green)
        sim_capture_forget(stream);
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    struct sim_green *green;
    SIM_TRY(sim_enter());
    green = named(handle);
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_context_drain(green->primary, green);
    if (!sim_green_end(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_handle_for_each(SIM_STREAM, green->primary, forget_capture, green);
    return cuDevicePrimaryCtxRelease_v2(green->primary->device->ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle) {
    struct sim_green *green;
    SIM_REQUIRE(context);
    SIM_TRY(find(handle, &green));
    *context = SIM_POINTER(CUcontext, green->name);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id) {
    struct sim_green *green = sim_thread_green();
    SIM_REQUIRE(id);
    if (handle)
        SIM_TRY(find(handle, &green));
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    *id = green->id;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type) {
    struct sim_green *green;
    SIM_REQUIRE(resource);
    SIM_TRY(find(handle, &green));
    return resource_of(green->resources.device, &green->resources, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(resource);
    struct sim_context *context = handle ? sim_context_named(handle) : sim_thread_top();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return resource_of(context->device->ordinal, context->green ? &context->green->resources : NULL, resource,
                       type);
}

CUresult cuStreamGetDevResource(CUstream handle, CUdevResource *resource, CUdevResourceType type) {
    struct sim_stream *stream;
    SIM_REQUIRE(resource);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    const struct sim_green *green = stream->type == SIM_STREAM_LEGACY ? sim_thread_green() : stream->green;
    CUresult result =
        type == CU_DEV_RESOURCE_TYPE_SM
            ? resource_of(stream->context->device->ordinal, green ? &green->resources : NULL, resource, type)
            : CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sim_release(stream);
    return result;
}

CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned int flags, int priority) {
    struct sim_green *green;
    SIM_REQUIRE(out && flags == CU_STREAM_NON_BLOCKING);
    SIM_TRY(find(handle, &green));
    return sim_stream_create(out, green->primary, green, flags, priority);
}

/* ---- events of all work ---- */

/* A stream of the driver's own, made when first used. */
static struct sim_stream *own(_Atomic(struct sim_stream *) *place, struct sim_context *context,
                              struct sim_green *green) {
    struct sim_stream *stream = atomic_load(place), *none = NULL;
    if (stream)
        return stream;
    stream = sim_stream_new(context, SIM_STREAM_PER_THREAD, CU_STREAM_NON_BLOCKING, SIM_LEAST_PRIORITY);
    if (stream)
        stream->green = green;
    if (stream && !atomic_compare_exchange_strong(place, &none, stream)) {
        sim_release(sim_handle_close(stream->object.handle, SIM_STREAM));
        stream = none;
    }
    return stream;
}

static CUresult record(struct sim_context *context, struct sim_green *green, CUevent event) {
    struct sim_stream *join = own(&context->join, context, NULL);
    struct sim_context *of;
    if (!join)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(sim_event_context(event, &of));
    if (of != context)
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_capture_check_context(context, green));
    sim_context_join(context, green, join);
    return sim_event_record_in(event, join);
}

static CUresult wait(struct sim_context *context, struct sim_green *green, CUevent event) {
    struct sim_stream *gate = own(green ? &green->gate : &context->gate, context, green);
    if (!gate)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(sim_event_uncaptured(event));
    SIM_TRY(sim_capture_check_context(context, green));
    SIM_TRY(sim_event_wait_in(event, gate));
    return green ? sim_event_wait_in(event, context->legacy) : CUDA_SUCCESS; /* is the green one's, too */
}

typedef CUresult for_all(struct sim_context *context, struct sim_green *green, CUevent event);

static CUresult in_context(CUcontext handle, CUevent event, for_all *action) {
    SIM_TRY(sim_enter());
    struct sim_context *context = handle ? sim_context_named(handle) : sim_thread_top();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_context *base = context->green ? context->green->primary : context;
    SIM_TRY(sim_context_check(base));
    return action(base, context->green, event);
}

static CUresult in_green(CUgreenCtx handle, CUevent event, for_all *action) {
    struct sim_green *green;
    SIM_TRY(find(handle, &green));
    return action(green->primary, green, event);
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
    return in_context(context, event, record);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
    return in_context(context, event, wait);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
    return in_green(green, event, record);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
    return in_green(green, event, wait);
}
