/* Fibers: a function on a stack of its own, switched to and from by hand. Not tied to kernels. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct sim_context {
    void *sp;
    /* what the sanitizers need to know */
    const void *stack_low;
    size_t stack_size;
    void *sanitizer;
};

void sim_context_init(struct sim_context *context, uint8_t *stack_low, size_t stack_size,
                      void (*entry)(void *), void *argument);
/* Called first in `entry`, with the context that switched to it. */
void sim_context_entered(struct sim_context *from);
void sim_context_switch(struct sim_context *from, struct sim_context *to);
/* Switches away for the last time: nothing returns to `from`. */
void sim_context_leave(struct sim_context *from, struct sim_context *to) __attribute__((noreturn));
/* Its frames are dropped; gives the stack pointer with which a function can be called on the empty stack. */
uintptr_t sim_context_rewind(struct sim_context *context);
/* A fiber that will not be entered again is forgotten by the sanitizers. */
void sim_context_destroy(struct sim_context *context);
