#define _GNU_SOURCE
#include "fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#error "the simulated device's engine knows x86-64 only: add fiber_<machine>.S and its first frame below"
#endif

void sim_fiber_jump(void **save, void *load);
void sim_fiber_entry(void);

/* Stacks begin at different places of their pages, or they would compete for the same few lines of the cache.
 */
static size_t color(const uint8_t *stack_low) {
    return ((uintptr_t)stack_low >> 12) % 32 * 128;
}

void sim_context_init(struct sim_context *context, uint8_t *stack_low, size_t stack_size,
                      void (*entry)(void *), void *argument) {
    /* sim_fiber_jump pops r15 r14 r13 r12 rbx rbp and returns into sim_fiber_entry with rsp 16-byte aligned.
     */
    void **top = (void **)(stack_low + stack_size - 16 - color(stack_low));
    *--top = (void *)sim_fiber_entry;
    *--top = NULL;
    *--top = NULL;
    *--top = (void *)entry;
    *--top = argument;
    *--top = NULL;
    *--top = NULL;
    context->sp = top;
    context->stack_low = stack_low;
    context->stack_size = stack_size;
    context->sanitizer = NULL;
#if defined(__SANITIZE_THREAD__)
    context->sanitizer = __tsan_create_fiber(0);
#endif
}

void sim_context_entered(struct sim_context *from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &from->stack_low, &from->stack_size);
#else
    (void)from;
#endif
}

static void announce(struct sim_context *from, struct sim_context *to, int leaving) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(leaving ? NULL : &from->sanitizer, to->stack_low, to->stack_size);
#elif defined(__SANITIZE_THREAD__)
    from->sanitizer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    (void)from, (void)to, (void)leaving;
}

void sim_context_switch(struct sim_context *from, struct sim_context *to) {
    announce(from, to, 0);
    sim_fiber_jump(&from->sp, to->sp);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#endif
}

void sim_context_leave(struct sim_context *from, struct sim_context *to) {
    announce(from, to, 1);
    sim_fiber_jump(&from->sp, to->sp);
    __builtin_unreachable();
}

uintptr_t sim_context_rewind(struct sim_context *context) {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(context->stack_low, context->stack_size);
#endif
    uintptr_t top = ((uintptr_t)context->stack_low + context->stack_size) & ~(uintptr_t)15;
    return top - 8; /* as if a return address had been pushed */
}

void sim_context_destroy(struct sim_context *context) {
#if defined(__SANITIZE_THREAD__)
    if (context->sanitizer != NULL)
        __tsan_destroy_fiber(context->sanitizer);
    context->sanitizer = NULL;
#else
    (void)context;
#endif
}
