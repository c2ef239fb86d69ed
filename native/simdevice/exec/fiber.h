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

/* Equal stacks with a guard page below each, kept for reuse. For one thread. */
struct sim_stack_pool {
    size_t stack_size; /* without the guard */
    size_t local_size; /* behind each stack, and another guard */
    uint8_t **free;
    uint32_t free_count, capacity;
    void **chunks;
    uint32_t chunk_count;
};

/* Makes the pool's stacks at least `size` bytes, each with `local` bytes of other memory. Only when no stack
 * is in use. */
void sim_stacks_require(struct sim_stack_pool *pool, size_t size, size_t local);
/* The memory that comes with a stack. */
uint8_t *sim_stack_local(const struct sim_stack_pool *pool, uint8_t *stack);
/* The lowest address of a stack, or NULL when memory is exhausted. */
uint8_t *sim_stack_take(struct sim_stack_pool *pool);
void sim_stack_give(struct sim_stack_pool *pool, uint8_t *stack);
void sim_stacks_release(struct sim_stack_pool *pool);
