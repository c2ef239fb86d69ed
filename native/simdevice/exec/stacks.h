/* Equal stacks, kept for reuse. For one thread.
 *
 * Below each is a guard page, as long as the process can spare the mappings; stacks beyond that lie next to
 * each other, and whether one was too small is seen when it is given back. That is too late where kernels are
 * not trusted: what one of them may overrun has a guard, or is not there.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_stack_chunk;

struct sim_stack_pool {
    size_t stack_size; /* without the guard */
    size_t local_size; /* behind each stack, and another guard */
    bool guarded;      /* all of them */
    uint8_t **free;
    uint32_t free_count, capacity;
    struct sim_stack_chunk *chunks;
    uint32_t chunk_count, unguarded; /* chunks */
};

/* Makes the pool's stacks at least `size` bytes, each with `local` bytes of other memory, and all `guarded`
 * if it says so. Only when no stack is in use. */
void sim_stacks_require(struct sim_stack_pool *pool, size_t size, size_t local, bool guarded);
/* The memory that comes with a stack. */
uint8_t *sim_stack_local(const struct sim_stack_pool *pool, uint8_t *stack);
void sim_stacks_release(struct sim_stack_pool *pool);
/* Makes more stacks. */
bool sim_stacks_grow(struct sim_stack_pool *pool);
/* Whether there is memory for so many more. */
bool sim_stacks_reserve(struct sim_stack_pool *pool, uint32_t count);
/* Frames are probed page by page, so a stack that was too small has touched the page below it. */
bool sim_stack_overran(uint8_t *stack);
#if defined(__SANITIZE_ADDRESS__)
/* What an abandoned fiber, which never unwound, has marked there. */
void sim_stack_forget(const struct sim_stack_pool *pool, uint8_t *stack);
#else
static inline void sim_stack_forget(const struct sim_stack_pool *pool, uint8_t *stack) {
    (void)pool, (void)stack;
}
#endif

/* The lowest address of a stack, or NULL when memory is exhausted. */
static inline uint8_t *sim_stack_take(struct sim_stack_pool *pool) {
    if (pool->free_count == 0 && !sim_stacks_grow(pool))
        return NULL;
    return pool->free[--pool->free_count];
}

/* False: more was used than there is, and what lies below it may be damaged. */
static inline bool sim_stack_give(struct sim_stack_pool *pool, uint8_t *stack) {
    sim_stack_forget(pool, stack);
    pool->free[pool->free_count++] = stack;
    return pool->unguarded == 0 || !sim_stack_overran(stack);
}
