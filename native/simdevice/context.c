/* What a context is: alive or not, with which error, and which one is current. */
#include "context.h"
#include "green.h"
#include "log.h"
#include "thread.h"

/* Every context there ever was: they are never freed, so the list only grows. */
static _Atomic(struct sim_context *) all;

void sim_context_keep(struct sim_context *context) {
    context->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &context->next, context))
        ;
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
    return (CUresult)atomic_load_explicit(&context->error, memory_order_acquire);
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

void sim_context_fail(struct sim_context *context, CUresult error) {
    int none = CUDA_SUCCESS;
    if (atomic_compare_exchange_strong(&context->error, &none, (int)error)) {
        const char *name = "?";
        cuGetErrorName(error, &name);
        sim_message(SIM_LOG_INFO, "context %llu of device %d ended by %s", (unsigned long long)context->id,
                    context->device->ordinal, name);
    }
}
