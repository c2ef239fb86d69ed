/* The services for kernels that need neither fibers nor locks of the engine: errors, heap, clocks. */
#include "engine.h"
#include "reach.h"
#include "device_limits.h"
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

static struct sim_worker *worker_of(struct sim_thread *t) {
    return sim_cta_of(t)->worker;
}

void sim_rt_trap(struct sim_thread *t) {
    sim_run_fail(worker_of(t)->run, CUDA_ERROR_LAUNCH_FAILED, "trap");
    sim_worker_abort(worker_of(t));
}

void sim_rt_overflow(struct sim_thread *t) {
    sim_run_overflowed(worker_of(t)->run);
    sim_worker_abort(worker_of(t));
}

void sim_rt_misaligned(struct sim_thread *t, uint64_t address) {
    sim_run_fail(worker_of(t)->run, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned access at address %#llx",
                 (unsigned long long)address);
    sim_worker_abort(worker_of(t));
}

void sim_rt_assertfail(struct sim_thread *t, const char *message, const char *file, uint32_t line,
                       const char *function) {
    const uint32_t *b = t->block->ctaid, *i = t->tid;
    char what[256], where[256], who[256];
    sim_take_text(t, message, what, sizeof what);
    sim_take_text(t, file, where, sizeof where);
    sim_take_text(t, function, who, sizeof who);
    sim_say("%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s' failed.", where, line, who, b[0],
            b[1], b[2], i[0], i[1], i[2], what);
    /* The thread ends, and its grid when those that can run now have had their say (worker.c, cta.c). */
    sim_cta_of(t)->asserted = true;
}

void *sim_rt_malloc(struct sim_thread *t, uint64_t size) {
    return sim_rt_aligned_malloc(t, size, 16);
}

void *sim_rt_aligned_malloc(struct sim_thread *t, uint64_t size, uint64_t alignment) {
    const struct sim_grid *grid = worker_of(t)->run->grid;
    if (grid->used != NULL)
        atomic_fetch_or_explicit(grid->used, SIM_USED_HEAP, memory_order_relaxed);
    void *taken = sim_heap_take(size, alignment, grid->heap_limit);
    if (taken == NULL && size != 0)
        atomic_store_explicit(&worker_of(t)->run->heap_full, true, memory_order_relaxed);
    return taken;
}

void sim_rt_free(struct sim_thread *t, void *pointer) {
    if (pointer != NULL && !sim_heap_give(pointer))
        sim_rt_illegal(t, (uint64_t)(uintptr_t)pointer);
}

uint64_t sim_rt_clock64(struct sim_thread *t) {
    (void)t;
    return __rdtsc();
}

uint64_t sim_rt_grid_workspace(struct sim_thread *t) {
    (void)t;
    const struct sim_run *run = sim_current_worker->run;
    return run->grid->cooperative ? (uint64_t)(uintptr_t)run->workspace : 0;
}

uint64_t sim_rt_globaltimer(struct sim_thread *t) {
    (void)t;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
