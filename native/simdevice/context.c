/* What a context is: alive or not, with which error, and which one is current. */
#include "context.h"
#include "green.h"
#include "log.h"
#include "thread.h"

/* Youngest first. Read without the lock: contexts are never freed, and who stands on one that was just taken
 * out finds the way back, as what was behind it was older and is still behind it. */
static _Atomic(struct sim_context *) all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned active_count;

void sim_context_keep(struct sim_context *context) {
    pthread_mutex_lock(&all_lock);
    struct sim_context *next = atomic_load(&all);
    atomic_store(&context->next, next);
    if (next)
        next->previous = context;
    atomic_store(&all, context);
    pthread_mutex_unlock(&all_lock);
}

void sim_context_drop(struct sim_context *context) {
    pthread_mutex_lock(&all_lock);
    struct sim_context *next = atomic_load(&context->next);
    if (next)
        next->previous = context->previous;
    atomic_store(context->previous ? &context->previous->next : &all, next);
    pthread_mutex_unlock(&all_lock);
}

void sim_context_set_active(struct sim_context *context, bool active) {
    if (atomic_exchange(&context->active, active) != active)
        atomic_fetch_add(&active_count, active ? 1u : -1u);
}

bool sim_context_any_active(void) {
    return atomic_load(&active_count) > 0;
}

struct sim_context *sim_contexts(void) {
    return atomic_load(&all);
}

bool sim_context_flags_valid(unsigned flags) {
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 &&
           (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
            schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

struct sim_context *sim_context_named(CUcontext handle) {
    struct sim_context *context = sim_acquire(SIM_HANDLE(handle), SIM_CONTEXT);
    if (context)
        sim_release(context);
    return context;
}

struct sim_context *sim_context_of(CUcontext handle) {
    struct sim_context *context = sim_context_named(handle);
    return context && context->green ? context->green->primary : context;
}

CUresult sim_context_error(const struct sim_context *context) {
    return (CUresult)atomic_load_explicit(&context->device->error, memory_order_acquire);
}

CUresult sim_context_check(const struct sim_context *context) {
    if (!atomic_load_explicit(&context->active, memory_order_acquire))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return sim_context_error(context);
}

CUresult sim_context_current(struct sim_context **context) {
    SIM_TRY(sim_enter());
    *context = sim_thread_current();
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    const struct sim_green *green = sim_thread_green();
    return green && atomic_load(&green->gone) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : sim_context_check(*context);
}

void sim_contexts_recover(struct sim_device *device) {
    for (const struct sim_context *each = sim_contexts(); each; each = atomic_load(&each->next))
        if (each->device == device && !each->green && atomic_load(&each->active))
            return;
    atomic_store(&device->error, CUDA_SUCCESS);
}

void sim_context_fail(struct sim_context *context, CUresult error) {
    int none = CUDA_SUCCESS;
    if (atomic_compare_exchange_strong(&context->device->error, &none, (int)error)) {
        const char *name = "?";
        cuGetErrorName(error, &name);
        sim_message(SIM_LOG_INFO, "context %llu of device %d ended by %s", (unsigned long long)context->id,
                    context->device->ordinal, name);
    }
}
