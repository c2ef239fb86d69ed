#define _GNU_SOURCE
#include "fiber.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

enum { GUARD = 4096, STACKS_PER_CHUNK = 32 };

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

/* From one stack to the next: a guard, the stack, and local memory behind a guard if there is any. */
static size_t pitch_of(const struct sim_stack_pool *pool) {
    return GUARD + pool->stack_size + (pool->local_size != 0 ? GUARD + pool->local_size : 0);
}

/* The last stack is followed by a guard, too. */
static size_t chunk_size(const struct sim_stack_pool *pool) {
    return pitch_of(pool) * STACKS_PER_CHUNK + GUARD;
}

uint8_t *sim_stack_local(const struct sim_stack_pool *pool, uint8_t *stack) {
    return stack + pool->stack_size + GUARD;
}

void sim_stacks_release(struct sim_stack_pool *pool) {
    for (uint32_t i = 0; i < pool->chunk_count; i++)
        munmap(pool->chunks[i], chunk_size(pool));
    free(pool->chunks);
    free(pool->free);
    *pool = (struct sim_stack_pool){.stack_size = pool->stack_size, .local_size = pool->local_size};
}

void sim_stacks_require(struct sim_stack_pool *pool, size_t size, size_t local) {
    size = (size + 0xffff) & ~(size_t)0xffff;
    local = (local + 0xffff) & ~(size_t)0xffff;
    if (size <= pool->stack_size && local <= pool->local_size)
        return;
    sim_stacks_release(pool);
    pool->stack_size = size > pool->stack_size ? size : pool->stack_size;
    pool->local_size = local > pool->local_size ? local : pool->local_size;
}

static int grow(struct sim_stack_pool *pool) {
    uint32_t capacity = pool->capacity + STACKS_PER_CHUNK;
    uint8_t **stacks = realloc(pool->free, capacity * sizeof *stacks);
    if (stacks == NULL)
        return 0;
    pool->free = stacks;
    void **chunks = realloc(pool->chunks, (pool->chunk_count + 1) * sizeof *chunks);
    if (chunks == NULL)
        return 0;
    pool->chunks = chunks;
    size_t pitch = pitch_of(pool), size = chunk_size(pool);
    uint8_t *chunk = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (chunk == MAP_FAILED)
        return 0;
    /* Transparent huge pages would make every stack cost 2 MiB. */
    madvise(chunk, size, MADV_NOHUGEPAGE);
    chunks[pool->chunk_count++] = chunk;
    pool->capacity = capacity;
    (void)mprotect(chunk + size - GUARD, GUARD, PROT_NONE);
    for (uint32_t i = STACKS_PER_CHUNK; i-- > 0;) {
        /* A process may have only so many mappings (vm.max_map_count). Past that a stack without a guard
         * serves. */
        (void)mprotect(chunk + i * pitch, GUARD, PROT_NONE);
        if (pool->local_size != 0)
            (void)mprotect(chunk + i * pitch + GUARD + pool->stack_size, GUARD, PROT_NONE);
        stacks[pool->free_count++] = chunk + i * pitch + GUARD;
    }
    return 1;
}

uint8_t *sim_stack_take(struct sim_stack_pool *pool) {
    if (pool->free_count == 0 && !grow(pool))
        return NULL;
    return pool->free[--pool->free_count];
}

void sim_stack_give(struct sim_stack_pool *pool, uint8_t *stack) {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(stack, pool->stack_size); /* an abandoned fiber never unwound */
#endif
    pool->free[pool->free_count++] = stack;
}
