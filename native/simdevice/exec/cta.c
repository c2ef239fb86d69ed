/* One block whose threads are fibers. */
#include "engine.h"
#include "guarded.h"
#include <stdlib.h>
#include <string.h>

void sim_block_describe(struct sim_block *block, const struct sim_run *run, uint64_t index) {
    const struct sim_grid *grid = run->grid;
    uint64_t row = index / grid->grid[0];
    block->ctaid[0] = (uint32_t)(index % grid->grid[0]);
    block->ctaid[1] = (uint32_t)(row % grid->grid[1]);
    block->ctaid[2] = (uint32_t)(row / grid->grid[1]);
    memcpy(block->nctaid, grid->grid, sizeof block->nctaid);
    memcpy(block->ntid, grid->block, sizeof block->ntid);
    block->globals = grid->globals;
    block->params = grid->params;
    block->shared_static = grid->kernel->info->shared_static;
    block->shared_dynamic = grid->shared_dynamic;
    block->nsmid = grid->multiprocessors;
    block->gridid = run->gridid;
}

bool sim_cta_share(struct sim_cta *cta, const struct sim_grid *grid) {
    size_t size = ((size_t)grid->kernel->info->shared_static + 15) / 16 * 16 + grid->shared_dynamic;
    size = (size + 127) / 128 * 128 + 128; /* a vector access just past the end stays inside */
    if (size > cta->shared_capacity) {
        sim_guarded_free(cta->shared, cta->shared_capacity);
        cta->shared = sim_guarded_new(size);
        cta->shared_capacity = cta->shared != NULL ? size : 0;
    }
    cta->block.shared = cta->shared;
    return cta->shared != NULL;
}

static bool make_room(struct sim_cta *cta, uint32_t threads) {
    if (threads <= cta->fiber_capacity)
        return true;
    free(cta->fibers);
    free(cta->warps);
    cta->fibers = malloc(threads * sizeof *cta->fibers);
    cta->warps = malloc((threads + WARP - 1) / WARP * sizeof *cta->warps);
    cta->fiber_capacity = cta->fibers != NULL && cta->warps != NULL ? threads : 0;
    return cta->fiber_capacity != 0;
}

void sim_cta_free(struct sim_cta *cta) {
    free(cta->fibers);
    free(cta->warps);
    sim_guarded_free(cta->shared, cta->shared_capacity);
    free(cta);
}

bool sim_cta_begin(struct sim_cta *cta, struct sim_worker *worker, uint64_t index) {
    const struct sim_grid *grid = worker->run->grid;
    uint32_t threads = grid->block[0] * grid->block[1] * grid->block[2];
    if (!make_room(cta, threads) || !sim_cta_share(cta, grid))
        return false;
    sim_block_describe(&cta->block, worker->run, index);
    cta->block.smid = worker->smid;
    cta->block.engine = cta;
    cta->worker = worker;
    cta->current = NULL;
    cta->asserted = false;
    cta->thread_count = cta->live = threads;
    memset(cta->barriers, 0, sizeof cta->barriers);
    for (uint32_t first = 0; first < threads; first += WARP) {
        uint32_t lanes = threads - first < WARP ? threads - first : WARP;
        struct sim_warp *warp = &cta->warps[first / WARP];
        warp->live = lanes == WARP ? ~0u : (1u << lanes) - 1;
        warp->runnable = lanes;
        warp->spins = warp->meeting_count = 0;
    }
    cta->ready_first = NULL;
    cta->ready_last = &cta->ready_first;
    uint32_t tid[3] = {0, 0, 0};
    for (uint32_t i = 0; i < threads; i++) {
        struct sim_fiber *fiber = &cta->fibers[i];
        fiber->thread =
            (struct sim_thread){.block = &cta->block, .tid = {tid[0], tid[1], tid[2]}, .linear = i};
        fiber->stack = NULL;
        fiber->spins = 0;
        sim_cta_ready(cta, fiber);
        if (++tid[0] == grid->block[0]) {
            tid[0] = 0;
            if (++tid[1] == grid->block[1]) {
                tid[1] = 0;
                tid[2]++;
            }
        }
    }
    return true;
}

static void thread_main(void *argument) {
    struct sim_fiber *fiber = argument;
    struct sim_cta *cta = sim_cta_of(&fiber->thread);
    sim_context_entered(&cta->worker->base);
    cta->worker->run->grid->kernel->object.run_thread(&fiber->thread);
    sim_cta_exit(fiber);
}

static void release(struct sim_cta *cta, struct sim_fiber *fiber) {
    if (fiber->stack == NULL)
        return;
    sim_context_destroy(&fiber->context);
    sim_stack_give(&cta->worker->stacks, fiber->stack);
    fiber->stack = NULL;
}

static void resume(struct sim_cta *cta, struct sim_fiber *fiber) {
    struct sim_worker *worker = cta->worker;
    if (fiber->stack == NULL) {
        fiber->stack = sim_stack_take(&worker->stacks);
        if (fiber->stack == NULL) {
            sim_run_fail(worker->run, CUDA_ERROR_OUT_OF_MEMORY, "no memory for the stacks of a block");
            return;
        }
        fiber->thread.local = fiber->thread.local_top = sim_stack_local(&worker->stacks, fiber->stack);
        fiber->thread.local_end = fiber->thread.local + worker->stacks.local_size;
        sim_context_init(&fiber->context, fiber->stack, worker->stacks.stack_size, thread_main, fiber);
    }
    cta->current = fiber;
    worker->running = &fiber->context;
    sim_context_switch(&worker->base, &fiber->context);
    worker->running = NULL;
    if (cta->current == NULL) /* it has exited */
        release(cta, fiber);
}

void sim_cta_exit(struct sim_fiber *fiber) {
    struct sim_cta *cta = sim_cta_of(&fiber->thread);
    struct sim_warp *warp = sim_warp_of(fiber);
    cta->progress = true;
    cta->live--;
    warp->live &= ~(1u << fiber->thread.linear % WARP);
    warp->runnable--;
    sim_warp_exited(fiber);
    sim_barriers_exited(cta);
    cta->current = NULL;
    sim_context_leave(&fiber->context, &cta->worker->base);
}

static void deadlock(struct sim_cta *cta) {
    const uint32_t *c = cta->block.ctaid;
    sim_run_fail(
        cta->worker->run, CUDA_ERROR_LAUNCH_FAILED,
        "deadlock in block (%u,%u,%u): %u of %u threads have not exited and all of them wait for others",
        c[0], c[1], c[2], cta->live, cta->thread_count);
}

void sim_cta_judge(struct sim_cta *cta) {
    if (cta->asserted)
        sim_run_fail(cta->worker->run, CUDA_ERROR_ASSERT, "assertion failed");
    cta->asserted = false;
}

bool sim_cta_round(struct sim_cta *cta) {
    if (cta->live == 0)
        return false;
    struct sim_fiber *first = cta->ready_first;
    if (first == NULL) {
        if (!sim_barriers_unlock(cta))
            deadlock(cta);
        return true;
    }
    cta->ready_first = NULL;
    cta->ready_last = &cta->ready_first;
    for (struct sim_fiber *fiber = first, *next; fiber != NULL; fiber = next) {
        if (atomic_load_explicit(&cta->worker->run->error, memory_order_relaxed) != CUDA_SUCCESS)
            return true;
        next = fiber->next;
        resume(cta, fiber);
    }
    sim_cta_judge(cta);
    return cta->live != 0;
}

void sim_cta_discard(struct sim_cta *cta) {
    for (uint32_t i = 0; i < cta->thread_count; i++)
        release(cta, &cta->fibers[i]);
}

void sim_rt_exit(struct sim_thread *t) {
    sim_cta_exit(sim_fiber_of(t));
}

enum { CALLS_PER_YIELD = 64 };

static void yield(struct sim_fiber *fiber) {
    struct sim_cta *cta = sim_cta_of(&fiber->thread);
    sim_warp_spun(fiber);
    sim_cta_ready(cta, fiber);
    sim_context_switch(&fiber->context, &cta->worker->base);
}

void sim_rt_yield(struct sim_thread *t) {
    struct sim_fiber *fiber = sim_fiber_of(t);
    if (++fiber->spins % CALLS_PER_YIELD == 0)
        yield(fiber);
}

static void sleep_ns(uint32_t ns) {
    struct timespec time = {0, ns < 1000000 ? (long)ns : 1000000};
    nanosleep(&time, NULL);
}

void sim_rt_nanosleep(struct sim_thread *t, uint32_t ns) {
    struct sim_cta *cta = sim_cta_of(t);
    if (cta->current == NULL || (cta->ready_first == NULL && ns > 1000))
        sleep_ns(ns);
    if (cta->current != NULL)
        yield(sim_fiber_of(t));
}
