/* Green contexts: part of a device's multiprocessors, for work in the primary context. The program's handle
 * for one as a CUcontext names no context of the server: what is done there is done in the primary context,
 * but for streams, which are made in the green one. */
#include "green.h"

#include "calls.h"
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "freed.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "stream.h"
#include "window.h"

#define DRIVER(name) gf_##name
#define ENTER        (void)0

static bool facts(CUdevice device, unsigned *multiprocessors, int *major) {
    bool valid = device >= 0 && device < gf_session.device_count;
    const int *attributes = gf_session.devices[valid ? device : 0].attributes;
    *multiprocessors = (unsigned)attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    *major = attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
    return valid;
}

#include "driver_interop/device_resource.c.h"

/* Under either of its names: NVIDIA's runtime asks by the one that cuCtxFromGreenCtx gives. */
static struct gf_green_context *named(CUgreenCtx handle) {
    const struct gf_context *name = gf_context_find((CUcontext)handle);
    return gf_green_context_find(name == NULL ? handle : (CUgreenCtx)name->green);
}

/* Null is the one that is current. */
CUresult gf_green_id(CUgreenCtx handle, unsigned long long *id) {
    CUgreenCtx asked = handle != NULL ? handle : (CUgreenCtx)gf_thread.green;
    const struct gf_green_context *green = named(asked);
    if (green == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *id = green->id;
    return CUDA_SUCCESS;
}

CUresult gf_green_context(CUcontext *context, CUgreenCtx handle) {
    const struct gf_green_context *green = named(handle);
    if (green != NULL) {
        *context = (CUcontext)green->name;
    }
    return green == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* The green context of a context's handle; NULL: it is an ordinary one. */
static struct gf_green_context *green_of(CUcontext handle) {
    const struct gf_context *named = gf_context_find(handle);
    return named == NULL ? NULL : gf_green_context_find((CUgreenCtx)named->green);
}

uint64_t gf_green_of(CUcontext handle) {
    const struct gf_green_context *green = green_of(handle != NULL ? handle : (CUcontext)gf_context_shown());
    return green == NULL ? 0 : atomic_load(&green->object.handle);
}

unsigned gf_green_multiprocessors(const struct gf_stream *stream) {
    uint64_t handle = stream != NULL ? stream->green : gf_thread.green;
    const struct gf_green_context *green = handle == 0 ? NULL : gf_green_context_find((CUgreenCtx)handle);
    return green != NULL ? count_of(&green->resources->which)
                         : (unsigned)gf_device_here()->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
}

/* Sends in a context that need not be the current one. */
static uint32_t enter(uint64_t context) {
    uint32_t before = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(context) + 1;
    return before;
}

static CUresult make(uint64_t handle, const struct gf_resources *resources, unsigned flags) {
    struct gf_req_sessionGreenContext request = {
        .green = handle, .device = resources->device, .flags = flags};
    memcpy(request.multiprocessors, &resources->which, sizeof request.multiprocessors);
    if (resources->queue.type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG) {
        request.workloads = resources->queue.wqConfig.wqConcurrencyLimit;
        request.scope = resources->queue.wqConfig.sharingScope;
    }
    return gf_call_making(GF_OP_sessionGreenContext, &request, sizeof request, NULL, 0);
}

CUresult gf_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned flags) {
    const struct gf_resources *resources = resources_of(desc);
    uint64_t handle, name_handle;
    CUcontext primary;
    if (phCtx == NULL || resources == NULL || (flags & ~(unsigned)CU_GREEN_CTX_DEFAULT_STREAM) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (dev < 0 || dev >= gf_session.device_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    CUresult result =
        resources->device != dev ? CUDA_ERROR_INVALID_VALUE : gf_cuDevicePrimaryCtxRetain(&primary, dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_green_context *green = gf_green_context_new(&handle);
    struct gf_context *name = gf_context_new(&name_handle);
    uint32_t before = enter((uint64_t)primary);
    result = green == NULL || name == NULL ? CUDA_ERROR_OUT_OF_MEMORY : make(handle, resources, flags);
    gf_thread.context_id = before;
    if (result != CUDA_SUCCESS) {
        if (green != NULL) {
            gf_object_discard(green);
        }
        if (name != NULL) {
            gf_object_discard(name);
        }
        gf_cuDevicePrimaryCtxRelease_v2(dev);
        return result;
    }
    *phCtx = (CUgreenCtx)handle;
    green->device = name->device = dev;
    green->resources = resources;
    green->name = name_handle;
    name->primary = name->active = true; /* so it cannot be destroyed */
    name->green = handle;
    gf_object_publish(green, handle, gf_context_find(primary));
    gf_object_publish(name, name_handle, green);
    return CUDA_SUCCESS;
}

/* Its streams stay, and are good for nothing; the server has ordinary ones for them. */
static void detach_streams(uint64_t green) {
    struct gf_table *streams = &gf_tables[GF_HANDLE_STREAM];
    for (uint32_t slot = 0; slot < atomic_load(&streams->slots); slot++) {
        struct gf_stream *stream = gf_table_at(streams, slot);
        if (stream != NULL && stream->green == green) {
            struct gf_req_sessionGreenStream request = {.stream = atomic_load(&stream->object.handle)};
            gf_capture_forget(stream);
            gf_send_struct(GF_OP_sessionGreenStream, &request);
        }
    }
}

CUresult gf_cuGreenCtxDestroy(CUgreenCtx hCtx) {
    struct gf_green_context *green = named(hCtx);
    CUdevice device = green == NULL ? 0 : green->device;
    uint64_t handle = green == NULL ? 0 : atomic_load(&green->object.handle);
    struct gf_object *ended = green == NULL ? NULL : gf_object_end(green, handle);
    if (ended == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct gf_req_cuGreenCtxDestroy request = {.hCtx = handle};
    uint32_t before = enter(gf_context_primary(device));
    detach_streams(handle);
    CUresult result = gf_send_struct(GF_OP_cuGreenCtxDestroy, &request);
    gf_thread.context_id = before;
    gf_objects_release(ended);
    CUresult released = gf_cuDevicePrimaryCtxRelease_v2(device);
    return result != CUDA_SUCCESS ? result : released;
}

/* Streams */

CUresult gf_cuStreamCreateWithPriority_decode(CUstream *phStream, unsigned flags, int priority) {
    (void)flags;
    (void)priority;
    return gf_thread.green == 0 ? CUDA_SUCCESS : gf_stream_turn_green(*phStream, gf_thread.green);
}

CUresult gf_stream_turn_green(CUstream handle, uint64_t green) {
    struct gf_stream *stream = gf_stream_find(handle);
    struct gf_req_sessionGreenStream request = {.stream = (uint64_t)handle, .green = green};
    CUresult result =
        stream == NULL ? CUDA_ERROR_INVALID_HANDLE : gf_send_struct(GF_OP_sessionGreenStream, &request);
    if (result == CUDA_SUCCESS) {
        stream->green = green;
    }
    return result;
}

CUresult gf_green_stream(CUstream *stream, CUgreenCtx handle, unsigned flags, int priority) {
    const struct gf_green_context *green = named(handle);
    CUresult result =
        green == NULL ? CUDA_ERROR_INVALID_CONTEXT : gf_cuCtxPushCurrent_v2((CUcontext)green->name);
    if (result == CUDA_SUCCESS) {
        result = gf_cuStreamCreateWithPriority(stream, flags, priority);
        gf_cuCtxPopCurrent_v2(NULL);
    }
    return result;
}

static CUresult green_of_stream(CUstream handle, struct gf_stream **stream, uint64_t *green) {
    uint64_t wire;
    *stream = NULL;
    CUresult result = gf_stream_look_up(handle, stream, &wire);
    result = result == CUDA_SUCCESS ? gf_stream_usable(*stream) : result;
    bool special = *stream == NULL || handle == CU_STREAM_PER_THREAD; /* of whatever context is current */
    *green = result != CUDA_SUCCESS ? 0 : special ? gf_thread.green : (*stream)->green;
    return result;
}

CUresult gf_stream_green(CUstream handle, CUgreenCtx *green) {
    struct gf_stream *stream;
    uint64_t found;
    CUresult result = green_of_stream(handle, &stream, &found);
    if (result == CUDA_SUCCESS) {
        *green = (CUgreenCtx)found;
    }
    return result;
}

CUresult gf_stream_contexts(CUstream handle, CUcontext *context, CUgreenCtx *green) {
    struct gf_stream *stream;
    uint64_t found;
    if (green != NULL && handle == CU_STREAM_PER_THREAD && gf_thread.green != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = green_of_stream(handle, &stream, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct gf_green_context *of = found == 0 ? NULL : gf_green_context_find((CUgreenCtx)found);
    *context = (CUcontext)(stream == NULL ? gf_context_current_handle() : stream->object.owner);
    if (green != NULL) {
        *green = (CUgreenCtx)found;
    } else if (of != NULL) {
        *context = (CUcontext)of->name;
    }
    return CUDA_SUCCESS;
}

/* Resources */

CUresult gf_cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type) {
    CUcontext handle = hCtx != NULL ? hCtx : (CUcontext)gf_context_shown();
    const struct gf_context *context = gf_context_find(handle);
    const struct gf_green_context *green = green_of(handle);
    if (resource == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return context == NULL
               ? CUDA_ERROR_INVALID_CONTEXT
               : resource_of(context->device, green == NULL ? NULL : green->resources, resource, type);
}

CUresult gf_resource_of_green(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type) {
    const struct gf_green_context *green = named(handle);
    return green == NULL ? CUDA_ERROR_INVALID_CONTEXT
                         : resource_of(green->device, green->resources, resource, type);
}

CUresult gf_resource_of_stream(CUstream handle, CUdevResource *resource, CUdevResourceType type) {
    struct gf_stream *stream;
    uint64_t found;
    CUresult result = green_of_stream(handle, &stream, &found);
    if (result != CUDA_SUCCESS || type != CU_DEV_RESOURCE_TYPE_SM) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    const struct gf_green_context *green = found == 0 ? NULL : gf_green_context_find((CUgreenCtx)found);
    CUdevice device = 0;
    gf_stream_device(handle, &device);
    return resource_of(device, green == NULL ? NULL : green->resources, resource, type);
}

/* Events of all work */

static CUresult event_of(uint64_t context, uint64_t green, CUevent hEvent, bool wait) {
    struct gf_event *event = gf_event_find(hEvent);
    struct gf_req_sessionContextEvent request = {
        .owner = context, .green = green, .event = (uint64_t)hEvent, .wait = wait};
    if (event == NULL || (!wait && event->object.owner != context)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = CUDA_SUCCESS;
    if (gf_capture_any()) {
        result = wait ? gf_capture_event(hEvent) : CUDA_SUCCESS;
        result = result == CUDA_ERROR_CAPTURED_EVENT ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
        result = result == CUDA_SUCCESS ? gf_capture_context_of(context, green) : result;
        if (result == CUDA_SUCCESS && !wait) {
            gf_capture_release(event);
        }
    }
    uint32_t before = enter(context);
    if (result == CUDA_SUCCESS && !wait) {
        gf_event_marked(event, UINT64_MAX); /* in no stream of its own */
    }
    if (result == CUDA_SUCCESS) {
        result = gf_event_send(event, GF_OP_sessionContextEvent, &request, sizeof request);
    }
    gf_thread.context_id = before;
    if (result == CUDA_SUCCESS && !wait) {
        event->recorded = true;
        atomic_fetch_add(&event->records, 1);
    }
    return result;
}

CUresult gf_context_event(CUcontext handle, CUevent event, bool wait) {
    struct gf_context *context;
    uint64_t wire;
    CUresult result = gf_context_look_up(handle, &context, &wire);
    result = result == CUDA_SUCCESS ? gf_context_usable(context) : result;
    return result != CUDA_SUCCESS ? result : event_of(wire, gf_green_of(handle), event, wait);
}

CUresult gf_green_event(CUgreenCtx handle, CUevent event, bool wait) {
    const struct gf_green_context *green = named(handle);
    return green == NULL
               ? CUDA_ERROR_INVALID_CONTEXT
               : event_of(gf_context_primary(green->device), atomic_load(&green->object.handle), event, wait);
}

/* The server waits for an event that is behind all of it. */
static CUresult await_all(uint64_t context, uint64_t green) {
    CUevent event;
    CUresult result = gf_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_req_sessionContextEvent record = {.owner = context, .green = green, .event = (uint64_t)event};
    struct gf_req_cuEventSynchronize wait = {.hEvent = (uint64_t)event};
    result = gf_send_struct(GF_OP_sessionContextEvent, &record);
    result = result == CUDA_SUCCESS ? gf_call_struct(GF_OP_cuEventSynchronize, &wait, sizeof wait, NULL, 0)
                                    : result;
    gf_cuEventDestroy_v2(event);
    return result;
}

CUresult gf_green_synchronize(uint64_t handle) {
    const struct gf_green_context *green = gf_green_context_find((CUgreenCtx)handle);
    if (green == NULL) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    uint64_t context = gf_context_primary(green->device);
    const struct gf_lent before = gf_context_lend(context);
    CUresult result = await_all(context, handle);
    gf_context_return(before);
    return gf_window_waited(result);
}
