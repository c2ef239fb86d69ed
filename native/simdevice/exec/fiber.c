#define _GNU_SOURCE
#include "fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

void sim_fiber_entry(void);
void sim_fiber_ended(void);

/* Stacks begin at different places of their pages, or they would compete for the same few lines of the cache.
 */
static size_t color(const uint8_t *stack_low) {
    return ((uintptr_t)stack_low >> 12) % 32 * 128;
}

void sim_context_init(struct sim_context *context, uint8_t *stack_low, size_t stack_size,
                      void (*entry)(void *), void *argument) {
    /* sim_fiber_entry pops the argument and the function, which begins as if it had been called. */
    void **top = (void **)(stack_low + stack_size - 16 - color(stack_low));
    *--top = (void *)sim_fiber_ended;
    *--top = (void *)entry;
    *--top = argument;
    context->sp = top;
    context->bp = NULL;
    context->pc = (void *)sim_fiber_entry;
    context->stack_low = stack_low;
    context->stack_size = stack_size;
    context->sanitizer = NULL;
#if defined(__SANITIZE_THREAD__)
    context->sanitizer = __tsan_create_fiber(0);
#endif
}

uintptr_t sim_context_rewind(struct sim_context *context) {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(context->stack_low, context->stack_size);
#endif
    uintptr_t top = ((uintptr_t)context->stack_low + context->stack_size) & ~(uintptr_t)15;
    return top - 8; /* as if a return address had been pushed */
}

#if defined(__SANITIZE_ADDRESS__)
void sim_sanitizer_switching(struct sim_context *from, struct sim_context *to, int leaving) {
    to->before = from;
    __sanitizer_start_switch_fiber(leaving ? NULL : &from->sanitizer, to->stack_low, to->stack_size);
}

void sim_sanitizer_switched(struct sim_context *from) {
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
}

void sim_sanitizer_entered(struct sim_context *context) {
    __sanitizer_finish_switch_fiber(NULL, &context->before->stack_low, &context->before->stack_size);
}

void sim_sanitizer_destroyed(struct sim_context *context) {
    (void)context;
}
#elif defined(__SANITIZE_THREAD__)
void sim_sanitizer_switching(struct sim_context *from, struct sim_context *to, int leaving) {
    (void)leaving;
    from->sanitizer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->sanitizer, 0);
}

void sim_sanitizer_switched(struct sim_context *from) {
    (void)from;
}

void sim_sanitizer_entered(struct sim_context *context) {
    (void)context;
}

void sim_sanitizer_destroyed(struct sim_context *context) {
    if (context->sanitizer != NULL)
        __tsan_destroy_fiber(context->sanitizer);
    context->sanitizer = NULL;
}
#endif
