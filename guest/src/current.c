/* The context that is current on the calling thread. */
#include "context.h"
#include "gpuferry/results.h"

_Thread_local struct gf_thread gf_thread;
struct gf_context *gf_primaries[GF_DEVICES_MAX];
_Atomic unsigned gf_own_contexts;

bool gf_context_is_only_one(void) {
    return gf_session.device_count == 1 && atomic_load_explicit(&gf_own_contexts, memory_order_relaxed) == 0;
}

uint64_t gf_context_primary(CUdevice device) {
    return atomic_load(&gf_primaries[device]->object.handle);
}

uint64_t gf_context_current_handle(void) {
    return gf_thread.depth == 0 ? 0 : gf_thread.context;
}

struct gf_lent gf_context_lend(uint64_t handle) {
    const struct gf_lent before = {gf_thread.context, gf_thread.context_id};
    gf_thread.context = handle;
    gf_thread.context_id = handle == 0 ? 0 : gf_handle_slot(handle) + 1;
    return before;
}

void gf_context_return(struct gf_lent before) {
    gf_thread.context = before.context;
    gf_thread.context_id = before.context_id;
}

uint64_t gf_context_shown(void) {
    return gf_thread.depth == 0 ? 0 : gf_thread.stack[gf_thread.depth - 1];
}

struct gf_context *gf_context_current(void) {
    return gf_context_find((CUcontext)gf_context_current_handle());
}

bool gf_context_is_synchronous(void) {
    const struct gf_context *context = gf_context_current();
    return context != NULL && (context->flags & CU_CTX_SYNC_MEMOPS) != 0;
}

CUdevice gf_context_device(uint64_t handle) {
    const struct gf_context *context =
        gf_session.device_count > 1 ? gf_context_find((CUcontext)handle) : NULL;
    return context == NULL ? 0 : context->device;
}

int gf_device_number(void) {
    const struct gf_context *context = gf_session.device_count > 1 ? gf_context_current() : NULL;
    return context == NULL ? 0 : context->device;
}

const struct gf_device *gf_device_here(void) {
    return &gf_session.devices[gf_device_number()];
}

static struct gf_context *context_of(uint32_t id) {
    return id == 0 ? NULL : gf_table_at(&gf_tables[GF_HANDLE_CONTEXT], id - 1);
}

/* Of a context that another thread has destroyed the server knows nothing, nor is it needed: what goes on
 * there all the same is about another context, or about none. */
uint32_t gf_context_wire_id(void) {
    return context_of(gf_thread.context_id) == NULL ? 0 : gf_thread.context_id;
}

/* Failures reach all contexts of a device, until none is left. */
static _Atomic int failures[GF_DEVICES_MAX];

CUresult gf_device_failure(CUdevice device) {
    return (CUresult)atomic_load_explicit(&failures[device], memory_order_relaxed);
}

bool gf_device_recovers(CUdevice device) {
    struct gf_table *table = &gf_tables[GF_HANDLE_CONTEXT];
    for (uint32_t i = 0; i < atomic_load(&table->slots); i++) {
        const struct gf_context *each = gf_table_at(table, i);
        if (each != NULL && each->device == device && each->green == 0 && atomic_load(&each->active)) {
            return false;
        }
    }
    return atomic_exchange(&failures[device], CUDA_SUCCESS) != CUDA_SUCCESS;
}

CUresult gf_context_usable(const struct gf_context *context) {
    if (!atomic_load_explicit(&context->active, memory_order_acquire)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return gf_device_failure(context->device);
}

CUresult gf_context_check(void) {
    if (gf_thread.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct gf_context *context = gf_context_current();
    bool gone = context == NULL ||
                (gf_thread.green != 0 && gf_green_context_find((CUgreenCtx)gf_thread.green) == NULL);
    return gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : gf_context_usable(context);
}

CUresult gf_owner_usable(uint64_t owner) {
    const struct gf_context *context = gf_context_find((CUcontext)owner);
    return context == NULL ? CUDA_ERROR_CONTEXT_IS_DESTROYED : gf_context_usable(context);
}

bool gf_session_sticky(uint32_t context_id, CUresult error) {
    struct gf_context *context = gf_destroys_context(error) ? context_of(context_id) : NULL;
    if (context != NULL) {
        atomic_store(&failures[context->device], (int)error);
    }
    return context != NULL;
}
