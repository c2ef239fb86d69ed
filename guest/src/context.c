#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "driver_interop/interop.h"
#include "event.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "module.h"
#include "pending.h"
#include "stream.h"
#include "window.h"

_Thread_local struct gf_thread gf_thread;

static struct gf_table contexts = GF_TABLE(GF_HANDLE_CONTEXT, struct gf_context);
static struct gf_context *primary;
static uint32_t primary_flags;
static _Atomic uint64_t next_id = 1;
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_key;

/* What the driver calls errors after which "the process must be terminated and relaunched". */
static bool destroys_context(CUresult error) {
    switch ((int)error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

static void end_thread(void *thread_) {
    struct gf_thread *thread = thread_;
    gf_stream_thread_end(thread);
    if (thread->stack != thread->first) {
        free(thread->stack);
    }
    thread->stack = NULL;
    thread->depth = 0;
}

static void init_context(struct gf_context *context) {
    context->id = atomic_fetch_add(&next_id, 1);
    for (int i = 0; i < GF_LIMIT_COUNT; i++) {
        atomic_store(&context->limits[i], gf_session.device.limits[i]);
    }
}

bool gf_context_open(void) {
    uint64_t handle;
    primary = gf_table_take(&contexts, &handle);
    if (primary == NULL || pthread_key_create(&thread_key, end_thread) != 0) {
        return false;
    }
    primary->primary = true;
    init_context(primary);
    gf_table_publish(primary, handle);
    return true;
}

uint64_t gf_context_primary(void) {
    return atomic_load(&primary->object.handle);
}

uint64_t gf_context_current_handle(void) {
    return gf_thread.depth == 0 ? 0 : gf_thread.stack[gf_thread.depth - 1];
}

struct gf_context *gf_context_current(void) {
    return gf_table_find(&contexts, gf_context_current_handle());
}

uint32_t gf_context_wire_id(void) {
    return gf_thread.context_id;
}

static CUresult usable(const struct gf_context *context) {
    if (!atomic_load_explicit(&context->active, memory_order_acquire)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return (CUresult)atomic_load_explicit(&context->sticky, memory_order_relaxed);
}

CUresult gf_context_check(void) {
    if (gf_thread.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct gf_context *context = gf_context_current();
    return context == NULL ? CUDA_ERROR_CONTEXT_IS_DESTROYED : usable(context);
}

void gf_session_sticky(CUresult error) {
    struct gf_context *context = destroys_context(error) ? gf_context_current() : NULL;
    if (context != NULL) {
        atomic_store(&context->sticky, (int)error);
    }
}

struct gf_context *gf_context_of(CUcontext handle, CUresult *error) {
    if (handle == NULL) {
        *error = gf_context_check();
        return *error == CUDA_SUCCESS ? gf_context_current() : NULL;
    }
    struct gf_context *context = gf_table_find(&contexts, (uint64_t)handle);
    *error = context == NULL ? CUDA_ERROR_INVALID_CONTEXT : usable(context);
    return *error == CUDA_SUCCESS ? context : NULL;
}

static void set_top(uint64_t handle) {
    gf_thread.stack[gf_thread.depth - 1] = handle;
    gf_thread.context_id = gf_handle_slot(handle) + 1;
}

static CUresult push(uint64_t handle) {
    if (gf_thread.stack == NULL) {
        gf_thread.stack = gf_thread.first;
        gf_thread.capacity = GF_CONTEXT_DEPTH;
        pthread_setspecific(thread_key, &gf_thread);
    }
    if (gf_thread.depth == gf_thread.capacity) {
        size_t capacity = 2u * gf_thread.capacity;
        uint64_t *stack = capacity > UINT16_MAX ? NULL : malloc(capacity * sizeof *stack);
        if (stack == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(stack, gf_thread.stack, gf_thread.depth * sizeof *stack);
        if (gf_thread.stack != gf_thread.first) {
            free(gf_thread.stack);
        }
        gf_thread.stack = stack;
        gf_thread.capacity = (uint16_t)capacity;
    }
    gf_thread.depth++;
    set_top(handle);
    return CUDA_SUCCESS;
}

static uint64_t pop(void) {
    uint64_t handle = gf_thread.stack[--gf_thread.depth];
    gf_thread.context_id = gf_thread.depth == 0 ? 0 : gf_handle_slot(gf_context_current_handle()) + 1;
    return handle;
}

/* Everything that lives in a context goes with it, here as on the server. */
static void end_contents(uint64_t handle) {
    gf_context_storage_drop((CUcontext)handle);
    gf_stream_end_context(handle);
    gf_event_end_context(handle);
    gf_module_end_context(handle);
    gf_window_free_context(handle);
}

static bool valid_flags(unsigned flags) {
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && (schedule & (schedule - 1)) == 0;
}

static bool valid_device(CUdevice device) {
    return device >= 0 && device < gf_session.device_count;
}

CUresult gf_cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice dev) {
    if (pctx == NULL || !valid_flags(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    uint64_t handle;
    struct gf_context *context = gf_table_take(&contexts, &handle);
    if (context == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    init_context(context);
    context->flags = flags;
    atomic_store(&context->active, true);
    struct gf_req_cuCtxCreate_v2 request = {.pctx = handle, .flags = flags, .dev = dev};
    CUresult result = gf_send_struct(GF_OP_cuCtxCreate_v2, &request);
    result = result == CUDA_SUCCESS ? push(handle) : result;
    if (result != CUDA_SUCCESS) {
        gf_table_release(&contexts, context);
        return result;
    }
    gf_table_publish(context, handle);
    *pctx = (CUcontext)handle;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned flags,
                           CUdevice dev) {
    return numParams != 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : gf_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult gf_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned flags, CUdevice dev) {
    if (params != NULL && params->numExecAffinityParams != 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return params != NULL && params->cigParams != NULL ? CUDA_ERROR_NOT_SUPPORTED
                                                       : gf_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult gf_cuCtxDestroy_v2(CUcontext ctx) {
    struct gf_context *context = gf_table_find(&contexts, (uint64_t)ctx);
    if (context == NULL || context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    end_contents((uint64_t)ctx);
    if (!gf_table_end(context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (gf_context_current_handle() == (uint64_t)ctx) {
        pop();
    }
    struct gf_req_cuCtxDestroy_v2 request = {.ctx = (uint64_t)ctx};
    CUresult result = gf_send_struct(GF_OP_cuCtxDestroy_v2, &request);
    gf_table_release(&contexts, context);
    return result;
}

CUresult gf_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&primary_lock);
    primary->references++;
    primary->flags = primary_flags;
    atomic_store_explicit(&primary->active, true, memory_order_release);
    pthread_mutex_unlock(&primary_lock);
    *pctx = (CUcontext)gf_context_primary();
    return CUDA_SUCCESS;
}

/* Without primary_lock: what the runtime keeps in the context ends too, and its destructors make driver
 * calls. */
static CUresult empty_primary(CUdevice dev) {
    end_contents(gf_context_primary());
    atomic_store(&primary->active, false);
    atomic_store(&primary->sticky, CUDA_SUCCESS);
    for (int i = 0; i < GF_LIMIT_COUNT; i++) {
        atomic_store(&primary->limits[i], gf_session.device.limits[i]);
    }
    struct gf_req_cuDevicePrimaryCtxReset_v2 request = {.dev = dev};
    return gf_send_struct(GF_OP_cuDevicePrimaryCtxReset_v2, &request);
}

CUresult gf_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    if (!valid_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&primary_lock);
    uint32_t before = primary->references;
    primary->references -= before > 0;
    pthread_mutex_unlock(&primary_lock);
    if (before == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return before == 1 ? empty_primary(dev) : CUDA_SUCCESS;
}

CUresult gf_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    if (!valid_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&primary_lock);
    primary->references = 0;
    pthread_mutex_unlock(&primary_lock);
    return atomic_load(&primary->active) ? empty_primary(dev) : CUDA_SUCCESS;
}

CUresult gf_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
    if (!valid_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!valid_flags(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&primary_lock);
    primary_flags = primary->flags = flags;
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

CUresult gf_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active) {
    if (!valid_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (flags == NULL || active == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&primary_lock);
    *flags = primary_flags;
    *active = atomic_load(&primary->active);
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxPushCurrent_v2(CUcontext ctx) {
    if (gf_table_find(&contexts, (uint64_t)ctx) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return push((uint64_t)ctx);
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
    if (gf_table_find(&contexts, (uint64_t)ctx) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (gf_thread.depth == 0) {
        return push((uint64_t)ctx);
    }
    set_top((uint64_t)ctx);
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxGetCurrent(CUcontext *pctx) {
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = (CUcontext)gf_context_current_handle();
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxGetDevice(CUdevice *device) {
    return gf_cuCtxGetDevice_v2(device, NULL);
}

CUresult gf_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    CUresult error;
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (gf_context_of(ctx, &error) == NULL) {
        return error;
    }
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxGetFlags(unsigned *flags) {
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = gf_context_current()->flags;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxSetFlags(unsigned flags) {
    if (!valid_flags(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_context_current()->flags = flags;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    CUresult error;
    if (ctxId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct gf_context *context = gf_context_of(ctx, &error);
    if (context == NULL) {
        return error;
    }
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxSynchronize(void) {
    uint64_t through = gf_window_work();
    CUresult result = gf_call_struct(GF_OP_cuCtxSynchronize, NULL, 0, NULL, 0);
    if (result == CUDA_SUCCESS) {
        gf_window_synchronized(through);
    }
    return result;
}

/* A context that is not the caller's is synchronised as if it were. */
CUresult gf_cuCtxSynchronize_v2(CUcontext ctx) {
    CUresult error;
    if (gf_context_of(ctx, &error) == NULL) {
        return error;
    }
    uint32_t before = gf_thread.context_id;
    if (ctx != NULL) {
        gf_thread.context_id = gf_handle_slot((uint64_t)ctx) + 1;
    }
    CUresult result = gf_cuCtxSynchronize();
    gf_thread.context_id = before;
    return result;
}

CUresult gf_cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    if (pvalue == NULL || (unsigned)limit >= CU_LIMIT_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int64_t value = (unsigned)limit < GF_LIMIT_COUNT ? atomic_load(&gf_context_current()->limits[limit]) : -1;
    if (value < 0) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    *pvalue = (size_t)value;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxSetLimit(CUlimit limit, size_t value) {
    size_t now;
    CUresult result = gf_cuCtxGetLimit(&now, limit);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_req_cuCtxSetLimit request = {.limit = limit, .value = value};
    result = gf_call_struct(GF_OP_cuCtxSetLimit, &request, sizeof request, NULL, 0);
    if (result == CUDA_SUCCESS) {
        atomic_store(&gf_context_current()->limits[limit], (int64_t)value);
    }
    return result;
}

CUresult gf_cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
    if (pconfig == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pconfig = gf_context_current()->cache;
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxSetCacheConfig(CUfunc_cache config) {
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_context_current()->cache = config;
    struct gf_req_cuCtxSetCacheConfig request = {.config = config};
    return gf_send_struct(GF_OP_cuCtxSetCacheConfig, &request);
}

CUresult gf_cuCtxGetApiVersion(CUcontext ctx, unsigned *version) {
    CUresult error;
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (gf_context_of(ctx, &error) == NULL) {
        return error;
    }
    *version = 3020; /* as every driver since has answered for contexts of the _v2 interface */
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    if (leastPriority != NULL) {
        *leastPriority = gf_session.device.stream_priority_least;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = gf_session.device.stream_priority_greatest;
    }
    return CUDA_SUCCESS;
}

CUresult gf_cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type) {
    return pExecAffinity == NULL || (unsigned)type >= CU_EXEC_AFFINITY_TYPE_MAX
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult gf_cuCtxGetSharedMemConfig(CUsharedconfig *pConfig) {
    if (pConfig == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

/* Devices of today have one bank size; a valid wish is without effect. */
CUresult gf_cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE
                                                                        : CUDA_SUCCESS;
}

CUresult gf_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned Flags) {
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (gf_table_find(&contexts, (uint64_t)peerContext) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* A session has one device, and a device is no peer of its own. */
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult gf_cuCtxDisablePeerAccess(CUcontext peerContext) {
    return gf_table_find(&contexts, (uint64_t)peerContext) == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                                                   : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
