#define _GNU_SOURCE /* PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "driver_interop/interop.h"
#include "driver_interop/stream_settings.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "host_call.h"
#include "host_memory.h"
#include "module.h"
#include "pool_use.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

/* Held while a primary context ends, too: who retains it has the one that goes on, or the next. Recursive,
 * for what the runtime keeps in it makes driver calls when that goes. */
static pthread_mutex_t primary_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_key_t thread_key;

static void end_thread(void *thread_) {
    struct gf_thread *thread = thread_;
    gf_stream_thread_end(thread);
    if (thread->stack != thread->first) {
        free(thread->stack);
    }
    thread->stack = NULL;
    thread->depth = 0;
}

static void take_limits(struct gf_context *context) {
    for (int i = 0; i < GF_LIMIT_COUNT; i++) {
        atomic_store(&context->limits[i], gf_session.devices[context->device].limits[i]);
    }
}

bool gf_context_open(void) {
    for (int device = 0; device < gf_session.device_count; device++) {
        uint64_t handle;
        struct gf_context *primary = gf_primaries[device] = gf_context_new(&handle);
        if (primary == NULL) {
            return false;
        }
        primary->primary = true;
        primary->device = device;
        take_limits(primary);
        gf_object_publish(primary, handle, NULL);
    }
    return pthread_key_create(&thread_key, end_thread) == 0;
}

/* NULL is the current context. A sticky error is no obstacle to asking about a context. */
CUresult gf_context_look_up_inactive(CUcontext handle, struct gf_context **context, uint64_t *wire) {
    CUresult gone = CUDA_ERROR_INVALID_CONTEXT;
    if (handle == NULL) {
        if (gf_thread.depth == 0) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        handle = (CUcontext)gf_context_current_handle();
        gone = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *context = gf_context_find(handle);
    if (*context != NULL && (*context)->green != 0) {
        handle = (CUcontext)gf_context_primary((*context)->device);
        *context = gf_context_find(handle);
    }
    *wire = (uint64_t)handle;
    return *context == NULL ? gone : CUDA_SUCCESS;
}

CUresult gf_context_look_up(CUcontext handle, struct gf_context **context, uint64_t *wire) {
    CUresult result = gf_context_look_up_inactive(handle, context, wire);
    bool ended = result == CUDA_SUCCESS && !atomic_load(&(*context)->active);
    return ended ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
}

/* What follows from the top of the stack. */
static void settle(void) {
    uint64_t handle = gf_context_shown();
    const struct gf_context *named = gf_context_find((CUcontext)handle);
    gf_thread.green = named == NULL ? 0 : named->green;
    gf_thread.context = gf_thread.green == 0 ? handle : gf_context_primary(named->device);
    gf_thread.context_id = handle == 0 ? 0 : gf_handle_slot(gf_thread.context) + 1;
}

static void set_top(uint64_t handle) {
    gf_thread.stack[gf_thread.depth - 1] = handle;
    settle();
}

/* Room on this thread's stack for one more context, so that `push` cannot fail. */
static CUresult make_room(void) {
    if (gf_thread.stack == NULL) {
        gf_thread.stack = gf_thread.first;
        gf_thread.capacity = GF_CONTEXT_DEPTH;
        pthread_setspecific(thread_key, &gf_thread);
    }
    if (gf_thread.depth == gf_thread.capacity) {
        size_t capacity = 2u * gf_thread.capacity;
        uint64_t *stack = capacity > UINT32_MAX ? NULL : malloc(capacity * sizeof *stack);
        if (stack == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(stack, gf_thread.stack, gf_thread.depth * sizeof *stack);
        if (gf_thread.stack != gf_thread.first) {
            free(gf_thread.stack);
        }
        gf_thread.stack = stack;
        gf_thread.capacity = (uint32_t)capacity;
    }
    return CUDA_SUCCESS;
}

static void push(uint64_t handle) {
    gf_thread.depth++;
    set_top(handle);
}

static uint64_t pop(void) {
    uint64_t handle = gf_thread.stack[--gf_thread.depth];
    settle();
    return handle;
}

static void (*_Atomic at_end)(uint64_t handle);
_Atomic uint64_t gf_contexts_ended;

void gf_context_at_end(void (*callback)(uint64_t handle)) {
    atomic_store(&at_end, callback);
}

/* Everything that lives in a context goes with it, here as on the server, which the caller tells before it
 * releases what has ended. What the runtime keeps in the context goes first: its destructors make driver
 * calls. */
static struct gf_object *end_contents(struct gf_context *context, uint64_t handle) {
    atomic_fetch_add(&context->ends, 1);
    atomic_fetch_add(&gf_contexts_ended, 1);
    gf_loads_settle();
    gf_host_calls_settle(handle);
    gf_host_calls_await();
    gf_host_end_context(handle);
    gf_shared_end_context(handle);
    gf_context_storage_drop((CUcontext)handle);
    struct gf_object *ended = gf_object_end_owned(context);
    gf_window_free_context(handle);
    gf_stream_settings_forget(&context->settings);
    gf_pools_waited(CUDA_SUCCESS); /* whoever ends a context waits for its work */
    void (*also)(uint64_t) = atomic_load(&at_end);
    if (also != NULL) {
        also(handle);
    }
    return ended;
}

static bool valid_flags(unsigned flags) {
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && (schedule & (schedule - 1)) == 0;
}

static CUresult check_new(const CUcontext *pctx, unsigned flags, CUdevice dev) {
    if (pctx == NULL || !valid_flags(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gf_is_device(dev) ? gf_device_failure(dev) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult gf_cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice dev) {
    uint64_t handle;
    CUresult result = check_new(pctx, flags, dev);
    result = result == CUDA_SUCCESS ? make_room() : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_context *context = gf_context_new(&handle);
    if (context == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = dev;
    take_limits(context);
    context->flags = flags;
    atomic_store(&context->active, true);
    struct gf_req_cuCtxCreate_v2 request = {.pctx = handle, .flags = flags, .dev = dev};
    result = gf_send_struct(GF_OP_cuCtxCreate_v2, &request);
    if (result != CUDA_SUCCESS) {
        gf_object_discard(context);
        return result;
    }
    atomic_fetch_add(&gf_own_contexts, 1);
    gf_object_publish(context, handle, NULL);
    push(handle);
    *pctx = (CUcontext)handle;
    return CUDA_SUCCESS;
}

/* The server's primary context has failed as well, and is always there. */
static CUresult tell_destroyed(uint64_t handle, CUdevice device) {
    struct gf_req_cuCtxDestroy_v2 request = {.ctx = handle};
    struct gf_req_cuDevicePrimaryCtxReset_v2 reset = {.dev = device};
    CUresult result = gf_send_struct(GF_OP_cuCtxDestroy_v2, &request);
    if (result == CUDA_SUCCESS && gf_device_recovers(device)) {
        result = gf_send_struct(GF_OP_cuDevicePrimaryCtxReset_v2, &reset);
    }
    gf_window_settle(false); /* the server has waited for its work */
    return result;
}

CUresult gf_cuCtxDestroy_v2(CUcontext ctx) {
    struct gf_context *context = gf_context_find(ctx);
    if (context == NULL || context->primary) {
        return ctx == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    }
    const CUdevice device = context->device;
    struct gf_object *contents = end_contents(context, (uint64_t)ctx);
    struct gf_object *ended = gf_object_end(context, (uint64_t)ctx);
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    if (ended != NULL) {
        if (gf_context_current_handle() == (uint64_t)ctx) {
            pop();
        }
        atomic_fetch_sub(&gf_own_contexts, 1);
        result = tell_destroyed((uint64_t)ctx, device);
    }
    gf_objects_release(contents);
    gf_objects_release(ended);
    return result;
}

static CUresult retain(CUdevice dev) {
    pthread_mutex_lock(&primary_lock);
    struct gf_context *primary = gf_primaries[dev];
    CUresult result = atomic_load(&primary->active) ? CUDA_SUCCESS : gf_device_failure(dev);
    if (result == CUDA_SUCCESS) {
        primary->references++;
        atomic_store_explicit(&primary->active, true, memory_order_release);
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

CUresult gf_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    if (pctx == NULL || !gf_is_device(dev)) {
        return pctx == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    }
    CUresult result = retain(dev);
    if (result == CUDA_SUCCESS) {
        *pctx = (CUcontext)gf_context_primary(dev);
    }
    return result;
}

static CUresult end_primary(CUdevice dev) {
    struct gf_context *primary = gf_primaries[dev];
    struct gf_object *ended = end_contents(primary, gf_context_primary(dev));
    atomic_store(&primary->active, false);
    gf_device_recovers(dev);
    take_limits(primary);
    primary->cache = CU_FUNC_CACHE_PREFER_NONE;
    struct gf_req_cuDevicePrimaryCtxReset_v2 request = {.dev = dev};
    CUresult result = gf_send_struct(GF_OP_cuDevicePrimaryCtxReset_v2, &request);
    gf_window_settle(false);
    gf_objects_release(ended);
    return result;
}

/* What the runtime keeps there goes before the lock is taken: another thread may hold a lock of the runtime's
 * and wait for this one. If another one has retained the context meanwhile, it stays. */
static CUresult empty_primary(CUdevice dev, bool only_unheld) {
    const struct gf_context *primary = gf_primaries[dev];
    gf_context_storage_drop((CUcontext)gf_context_primary(dev));
    pthread_mutex_lock(&primary_lock);
    bool ends = atomic_load(&primary->active) && !(only_unheld && primary->references > 0);
    CUresult result = ends ? end_primary(dev) : CUDA_SUCCESS;
    pthread_mutex_unlock(&primary_lock);
    return result;
}

CUresult gf_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    if (!gf_is_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&primary_lock);
    struct gf_context *primary = gf_primaries[dev];
    uint32_t before = primary->references;
    primary->references -= before > 0;
    pthread_mutex_unlock(&primary_lock);
    if (before == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return before == 1 && atomic_load(&primary->active) ? empty_primary(dev, true) : CUDA_SUCCESS;
}

CUresult gf_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    if (!gf_is_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!atomic_load(&gf_primaries[dev]->active)) {
        return CUDA_SUCCESS;
    }
    gf_primaries[dev]->flags = CU_CTX_SCHED_AUTO;
    return empty_primary(dev, false);
}

CUresult gf_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
    if (!gf_is_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!valid_flags(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_primaries[dev]->flags = flags;
    return CUDA_SUCCESS;
}

/* A primary context that was reset has flags all the same. */
CUresult gf_cuCtxGetFlags(unsigned *flags) {
    const struct gf_context *context = gf_context_current();
    bool ended = context != NULL && context->primary && !atomic_load(&context->active);
    CUresult result = ended ? CUDA_SUCCESS : gf_context_check();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult gf_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active) {
    if (!gf_is_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (flags == NULL || active == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = gf_primaries[dev]->flags;
    *active = atomic_load(&gf_primaries[dev]->active);
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxPushCurrent_v2(CUcontext ctx) {
    if (gf_context_find(ctx) == NULL) {
        return ctx == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult result = make_room();
    if (result == CUDA_SUCCESS) {
        push((uint64_t)ctx);
    }
    return result;
}

CUresult gf_cuCtxPopCurrent_v2(CUcontext *pctx) {
    if (gf_thread.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint64_t handle = pop();
    if (pctx != NULL) {
        *pctx = (CUcontext)handle;
    }
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxSetCurrent(CUcontext ctx) {
    if (ctx == NULL) {
        if (gf_thread.depth > 0) {
            pop();
        }
        return CUDA_SUCCESS;
    }
    if (gf_context_find(ctx) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (gf_thread.depth == 0) {
        return gf_cuCtxPushCurrent_v2(ctx);
    }
    set_top((uint64_t)ctx);
    return CUDA_SUCCESS;
}
