#define _GNU_SOURCE
#include "stacks.h"
#include "mappings.h"
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

enum { GUARD = 4096, GUARDED = 32, UNGUARDED = 256 }; /* bytes; stacks of a chunk */

struct sim_stack_chunk {
    uint8_t *base;
    size_t size;
    uint32_t guards;
};

/* From one stack to the next: a guard, the stack, and local memory behind a guard if there is any. */
static size_t pitch_of(const struct sim_stack_pool *pool) {
    return GUARD + pool->stack_size + (pool->local_size != 0 ? GUARD + pool->local_size : 0);
}

uint8_t *sim_stack_local(const struct sim_stack_pool *pool, uint8_t *stack) {
    return stack + pool->stack_size + GUARD;
}

static void unmap(const struct sim_stack_chunk *chunk) {
    munmap(chunk->base, chunk->size);
    sim_private_give(chunk->size);
}

void sim_stacks_release(struct sim_stack_pool *pool) {
    for (uint32_t i = 0; i < pool->chunk_count; i++) {
        unmap(&pool->chunks[i]);
        sim_guards_give(pool->chunks[i].guards);
    }
    free(pool->chunks);
    free(pool->free);
    *pool = (struct sim_stack_pool){
        .stack_size = pool->stack_size, .local_size = pool->local_size, .guarded = pool->guarded};
}

void sim_stacks_require(struct sim_stack_pool *pool, size_t size, size_t local, bool guarded) {
    size = (size + 0xffff) & ~(size_t)0xffff;
    local = (local + 0xffff) & ~(size_t)0xffff;
    pool->guarded = guarded;
    if (size <= pool->stack_size && local <= pool->local_size && (!guarded || pool->unguarded == 0))
        return;
    sim_stacks_release(pool);
    pool->stack_size = size > pool->stack_size ? size : pool->stack_size;
    pool->local_size = local > pool->local_size ? local : pool->local_size;
}

/* Guards around each of its stacks, and behind the last one. */
static bool guard(const struct sim_stack_pool *pool, const struct sim_stack_chunk *chunk) {
    size_t pitch = pitch_of(pool);
    bool done = mprotect(chunk->base + chunk->size - GUARD, GUARD, PROT_NONE) == 0;
    for (uint32_t i = 0; i < GUARDED && done; i++) {
        uint8_t *stack = chunk->base + i * pitch + GUARD;
        done = mprotect(stack - GUARD, GUARD, PROT_NONE) == 0 &&
               (pool->local_size == 0 || mprotect(stack + pool->stack_size, GUARD, PROT_NONE) == 0);
    }
    return done;
}

/* Of a chunk without guards those at its ends: nothing but stacks is reached from it. */
static bool guard_ends(const struct sim_stack_chunk *chunk) {
    return mprotect(chunk->base, GUARD, PROT_NONE) == 0 &&
           mprotect(chunk->base + chunk->size - GUARD, GUARD, PROT_NONE) == 0;
}

static bool map(const struct sim_stack_pool *pool, uint32_t stacks, struct sim_stack_chunk *chunk) {
    chunk->size = pitch_of(pool) * stacks + GUARD;
    if (!sim_private_take(chunk->size))
        return false;
    chunk->base = mmap(NULL, chunk->size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (chunk->base == MAP_FAILED) {
        sim_private_give(chunk->size);
        return false;
    }
    /* Transparent huge pages would make every stack cost 2 MiB. */
    madvise(chunk->base, chunk->size, MADV_NOHUGEPAGE);
    return true;
}

/* The number of its stacks; 0: there is no memory. */
static uint32_t make(const struct sim_stack_pool *pool, struct sim_stack_chunk *chunk) {
    uint32_t guards = GUARDED * (pool->local_size != 0 ? 4 : 2) + 1; /* each splits a mapping */
    if (sim_guards_take(guards, pool->guarded)) {
        chunk->guards = guards;
        if (map(pool, GUARDED, chunk)) {
            if (guard(pool, chunk))
                return GUARDED;
            unmap(chunk);
        }
        sim_guards_give(guards);
    }
    chunk->guards = 0;
    for (uint32_t stacks = pool->guarded ? 0 : UNGUARDED; stacks != 0; stacks /= 4) {
        if (!map(pool, stacks, chunk))
            continue;
        if (guard_ends(chunk))
            return stacks;
        unmap(chunk);
    }
    return 0;
}

bool sim_stacks_grow(struct sim_stack_pool *pool) {
    uint8_t **stacks = realloc(pool->free, (pool->capacity + UNGUARDED) * sizeof *stacks);
    if (stacks == NULL)
        return false;
    pool->free = stacks;
    struct sim_stack_chunk *chunks = realloc(pool->chunks, (pool->chunk_count + 1) * sizeof *chunks), made;
    if (chunks == NULL)
        return false;
    pool->chunks = chunks;
    uint32_t count = make(pool, &made);
    if (count == 0)
        return false;
    chunks[pool->chunk_count++] = made;
    pool->capacity += count;
    pool->unguarded += made.guards == 0;
    for (uint32_t i = count; i-- > 0;)
        stacks[pool->free_count++] = made.base + i * pitch_of(pool) + GUARD;
    return true;
}

bool sim_stacks_reserve(struct sim_stack_pool *pool, uint32_t count) {
    while (pool->free_count < count)
        if (!sim_stacks_grow(pool))
            return false;
    return true;
}

bool sim_stack_overran(uint8_t *stack) {
    unsigned char touched = 0;
    if (mincore(stack - GUARD, GUARD, &touched) != 0 || !(touched & 1))
        return false;
    madvise(stack - GUARD, GUARD, MADV_DONTNEED);
    return true;
}

#if defined(__SANITIZE_ADDRESS__)
void sim_stack_forget(const struct sim_stack_pool *pool, uint8_t *stack) {
    ASAN_UNPOISON_MEMORY_REGION(stack, pool->stack_size);
}
#endif
