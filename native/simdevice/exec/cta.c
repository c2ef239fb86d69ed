/* One block whose threads, or whose warps, are fibers. */
#include "engine.h"
#include "guarded.h"
#include <stdlib.h>
#include <string.h>

/* Where a block is whose cluster has more than one. */
static void place(struct sim_block *block, const struct sim_grid *grid, uint64_t index, uint32_t rank) {
    for (int axis = 0; axis < 3; axis++) {
        uint32_t clusters = grid->grid[axis] / grid->cluster[axis];
        block->ctaid[axis] = (uint32_t)(index % clusters) * grid->cluster[axis] + rank % grid->cluster[axis];
        index /= clusters;
        rank /= grid->cluster[axis];
    }
}

void sim_block_describe(struct sim_block *block, const struct sim_run *run, uint64_t index, uint32_t rank) {
    const struct sim_grid *grid = run->grid;
    uint64_t row = index / grid->grid[0];
    block->ctaid[0] = (uint32_t)(index % grid->grid[0]);
    block->ctaid[1] = (uint32_t)(row % grid->grid[1]);
    block->ctaid[2] = (uint32_t)(row / grid->grid[1]);
    block->cluster_size = sim_cluster_size(grid);
    if (block->cluster_size != 1)
        place(block, grid, index, rank);
    memcpy(block->cluster, grid->cluster, sizeof block->cluster);
    block->cluster_rank = rank;
    block->cluster_explicit = grid->explicit_cluster;
    block->shared = block->window + (size_t)rank * SIM_CLUSTER_STRIDE;
    memcpy(block->nctaid, grid->grid, sizeof block->nctaid);
    memcpy(block->ntid, grid->block, sizeof block->ntid);
    block->globals = grid->globals;
    block->params = grid->params;
    block->shared_static = grid->kernel->info->shared_static;
    block->shared_dynamic = grid->shared_dynamic;
    block->nsmid = grid->multiprocessors;
    block->gridid = run->gridid;
}

/* In front of shared memory: the lanes that a mask leaves out of a warp's access may lie there. A processor
 * that has to find out about a page that is not there takes hundreds of cycles over it. Generic addresses of
 * what is aligned to as much are aligned too, which is all that programs ask for. */
enum { BEFORE_SHARED = 1024 };

bool sim_cta_share(struct sim_cta *cta, const struct sim_grid *grid) {
    size_t size = sim_shared_size(grid->kernel->info->shared_static, grid->shared_dynamic);
    /* a vector access just past the end stays inside */
    size = BEFORE_SHARED + (size + 127) / 128 * 128 + 128;
    uint32_t blocks = sim_cluster_size(grid);
    if (blocks > 1) {
        if (size > SIM_CLUSTER_STRIDE)
            return false;
        size = (size_t)blocks * SIM_CLUSTER_STRIDE;
    }
    if (size > cta->shared_capacity) {
        sim_guarded_free(cta->shared, cta->shared_capacity);
        cta->shared = sim_guarded_new(size);
        cta->shared_capacity = cta->shared != NULL ? size : 0;
    }
    if (cta->shared == NULL)
        return false;
    cta->block.window = cta->shared + BEFORE_SHARED;
    return true;
}

static bool make_fibers(struct sim_cta *cta, uint32_t fibers, uint32_t warps) {
    if (fibers <= cta->fiber_capacity && warps <= cta->warp_capacity)
        return true;
    free(cta->fibers);
    free(cta->warps);
    cta->fibers = calloc(fibers, sizeof *cta->fibers);
    cta->warps = malloc(warps * sizeof *cta->warps);
    memset(cta->described, 0, sizeof cta->described);
    bool made = cta->fibers != NULL && cta->warps != NULL;
    cta->fiber_capacity = made ? fibers : 0;
    cta->warp_capacity = made ? warps : 0;
    return made;
}

static bool make_lanes(struct sim_cta *cta, uint32_t warps) {
    if (warps <= cta->lanes_capacity)
        return true;
    free(cta->lanes);
    cta->lanes = aligned_alloc(_Alignof(struct sim_lanes), warps * sizeof *cta->lanes);
    cta->lanes_capacity = cta->lanes != NULL ? warps : 0;
    memset(cta->described, 0, sizeof cta->described);
    return cta->lanes != NULL;
}

void sim_cta_free(struct sim_cta *cta) {
    free(cta->fibers);
    free(cta->warps);
    free(cta->lanes);
    sim_guarded_free(cta->shared, cta->shared_capacity);
    free(cta);
}

/* Thread `linear` of the block, whose place follows that of the thread before it. */
static void describe_thread(struct sim_cta *cta, struct sim_thread *thread, uint32_t linear,
                            uint32_t tid[3]) {
    *thread = (struct sim_thread){.block = &cta->block, .tid = {tid[0], tid[1], tid[2]}, .linear = linear};
    if (++tid[0] != cta->block.ntid[0])
        return;
    tid[0] = 0;
    if (++tid[1] != cta->block.ntid[1])
        return;
    tid[1] = 0;
    tid[2]++;
}

/* Lanes that a warp has no thread for follow the others in tid.x, as its code wants it. */
static void describe_warp(struct sim_cta *cta, uint32_t warp, uint32_t threads, uint32_t tid[3]) {
    struct sim_lanes *lanes = &cta->lanes[warp];
    struct sim_fiber *fiber = &cta->fibers[warp];
    uint32_t first = warp * WARP;
    lanes->block = &cta->block;
    lanes->first = first;
    lanes->local_size = 0;
    for (uint32_t i = 0; i < WARP; i++) {
        for (int axis = 0; axis < 3; axis++)
            lanes->tid[axis][i] = tid[axis];
        if (i != 0 && first + i >= threads)
            lanes->tid[0][i] = lanes->tid[0][i - 1] + 1;
        describe_thread(cta, &lanes->lane[i], first + i, tid);
    }
    fiber->thread = lanes->lane[0];
    fiber->lanes = lanes;
    fiber->warp = &cta->warps[warp];
}

static void begin_fiber(struct sim_cta *cta, struct sim_fiber *fiber) {
    fiber->spins = fiber->arrived = fiber->phase = 0;
    sim_cta_ready(cta, fiber);
}

static void begin_warp(struct sim_warp *warp, uint32_t lanes, uint32_t runnable) {
    warp->live = lanes >= WARP ? ~0u : (1u << lanes) - 1;
    warp->runnable = runnable;
    warp->spins = warp->meeting_count = 0;
}

/* Warps are the same ones in every block of that shape. */
static void begin_warps(struct sim_cta *cta, const uint32_t block[3], uint32_t warps) {
    uint32_t tid[3] = {0, 0, 0}, threads = cta->thread_count;
    bool described = memcmp(cta->described, block, sizeof cta->described) == 0;
    for (uint32_t w = 0; w < warps; w++) {
        if (!described)
            describe_warp(cta, w, threads, tid);
        begin_warp(&cta->warps[w], threads - w * WARP, 1);
        cta->lanes[w].live = cta->warps[w].live;
        cta->lanes[w].local_used = 0;
        begin_fiber(cta, &cta->fibers[w]);
    }
    memcpy(cta->described, block, sizeof cta->described);
}

static void begin_threads(struct sim_cta *cta) {
    uint32_t tid[3] = {0, 0, 0}, threads = cta->thread_count;
    for (uint32_t i = 0; i < threads; i++) {
        struct sim_fiber *fiber = &cta->fibers[i];
        struct sim_warp *warp = &cta->warps[i / WARP];
        uint32_t left = threads - i;
        if (i % WARP == 0)
            begin_warp(warp, left, left < WARP ? left : WARP);
        describe_thread(cta, &fiber->thread, i, tid);
        fiber->lanes = NULL;
        fiber->warp = warp;
        begin_fiber(cta, fiber);
    }
    memset(cta->described, 0, sizeof cta->described); /* fibers of warps are others */
}

/* The block is the cluster's next; the first has room for all. */
static bool join(struct sim_cta *cta, struct sim_cluster *cluster, const struct sim_grid *grid,
                 uint32_t threads) {
    cta->cluster = cluster;
    if (cluster->count == 0) {
        if (!sim_cta_share(cta, grid))
            return false;
        cluster->phase = cluster->pending = cluster->running = 0;
        cluster->waiters = NULL;
    } else {
        cta->block.window = cluster->blocks[0]->block.window;
    }
    cluster->blocks[cluster->count++] = cta;
    cluster->running++;
    cluster->pending += threads;
    return true;
}

bool sim_cta_begin(struct sim_cta *cta, struct sim_cluster *cluster, struct sim_worker *worker,
                   const struct sim_object *code, uint64_t index) {
    const struct sim_grid *grid = worker->run->grid;
    uint32_t threads = grid->block[0] * grid->block[1] * grid->block[2];
    uint32_t warps = (threads + WARP - 1) / WARP;
    cta->code = code;
    bool in_warps = sim_in_warps(cta->code, grid->block);
    uint32_t fibers = in_warps ? warps : threads;
    cta->fiber_count = 0;
    if (!make_fibers(cta, fibers, warps) || (in_warps && !make_lanes(cta, warps)) ||
        !join(cta, cluster, grid, threads))
        return false;
    cta->fiber_count = fibers;
    sim_block_describe(&cta->block, worker->run, index, cluster->count - 1);
    cta->block.smid = worker->smid;
    cta->block.engine = cta;
    cta->worker = worker;
    cta->current = cta->turn = cta->gone = NULL;
    cta->asserted = cta->waited = false;
    cta->thread_count = cta->live = threads;
    if (cta->open_barriers != 0)
        memset(cta->barriers, 0, sizeof cta->barriers);
    cta->open_barriers = 0;
    cta->ready_first = NULL;
    cta->ready_last = &cta->ready_first;
    if (in_warps)
        begin_warps(cta, grid->block, warps);
    else
        begin_threads(cta);
    return true;
}

static inline __attribute__((always_inline)) void end(struct sim_cta *cta, struct sim_fiber *fiber) {
    struct sim_warp *warp = fiber->warp;
    cta->progress = true;
    sim_cta_count(cta, fiber, fiber->lanes != NULL ? 0 : warp->live & ~(1u << fiber->thread.linear % WARP));
    warp->runnable--;
    if (warp->meeting_count != 0)
        sim_warp_exited(fiber);
    if (cta->open_barriers != 0)
        sim_barriers_exited(cta);
}

/* The next fiber of the round, if it has begun or, else, if it has not. */
static inline struct sim_fiber *next_that(struct sim_cta *cta, bool begun) {
    struct sim_fiber *next = cta->turn;
    if (next == NULL || (next->stack != NULL) != begun ||
        atomic_load_explicit(&cta->worker->run->error, memory_order_relaxed) != CUDA_SUCCESS)
        return NULL;
    return next;
}

/* Where to go on from a fiber that has ended. Who has not begun waits for the scheduler, which has this one's
 * stack back first. */
static inline __attribute__((always_inline)) struct sim_context *past(struct sim_cta *cta) {
    return next_that(cta, true) != NULL ? sim_cta_next(cta) : &cta->worker->base;
}

static inline __attribute__((always_inline, noreturn)) void leave(struct sim_cta *cta,
                                                                  struct sim_fiber *fiber) {
    fiber->next = cta->gone;
    cta->gone = fiber;
    sim_context_leave(&fiber->context, past(cta));
}

static void release(struct sim_cta *cta, struct sim_fiber *fiber) {
    if (fiber->stack == NULL)
        return;
    sim_context_destroy(&fiber->context);
    if (!sim_stack_give(cta->worker->stacks, fiber->stack))
        sim_run_overflowed(cta->worker->run);
    fiber->stack = NULL;
}

/* Local memory behind the stack, in equal parts for the lanes. */
static void place_stack(const struct sim_stack_pool *pool, struct sim_fiber *fiber) {
    struct sim_lanes *lanes = fiber->lanes;
    if (lanes == NULL) {
        fiber->thread.local = fiber->thread.local_top = sim_stack_local(pool, fiber->stack);
        fiber->thread.local_end = fiber->thread.local + pool->local_size;
        return;
    }
    lanes->stack = fiber->stack;
    lanes->stack_end = fiber->stack + pool->stack_size;
    if (pool->local_size == 0)
        return;
    uint8_t *local = sim_stack_local(pool, fiber->stack);
    lanes->local_size = pool->local_size / WARP & ~(uint64_t)63;
    for (uint32_t i = 0; i < WARP; i++) {
        lanes->lane[i].local = lanes->lane[i].local_top = local + i * lanes->local_size;
        lanes->lane[i].local_end = lanes->lane[i].local + lanes->local_size;
    }
}

/* A fiber that has not begun goes on where one has ended. */
static void follow(struct sim_cta *cta, struct sim_fiber *next, struct sim_fiber *ended) {
    cta->turn = next->next;
    cta->current = next;
    next->context = ended->context;
    next->stack = ended->stack;
    ended->context.sanitizer = NULL;
    ended->stack = NULL;
    place_stack(cta->worker->stacks, next);
    cta->worker->running = &next->context;
}

static void fiber_main(void *argument) {
    struct sim_fiber *fiber = argument, *next;
    struct sim_cta *cta = sim_cta_of(&fiber->thread);
    sim_context_entered(&fiber->context);
    for (;;) {
        if (fiber->lanes != NULL)
            cta->code->run_warp(fiber->lanes);
        else
            cta->code->run_thread(&fiber->thread);
        end(cta, fiber);
        next = next_that(cta, false);
        if (next != NULL) {
            follow(cta, next, fiber);
            fiber = next;
            continue;
        }
        if (!cta->waited || cta->worker->stacks->unguarded != 0)
            leave(cta, fiber);
        sim_context_switch(&fiber->context, past(cta));
        place_stack(cta->worker->stacks, fiber);
    }
}

bool sim_cta_prepare(struct sim_cta *cta, struct sim_fiber *fiber) {
    struct sim_stack_pool *stacks = cta->worker->stacks;
    if (stacks->free_count == 0)
        return false;
    fiber->stack = sim_stack_take(stacks);
    place_stack(stacks, fiber);
    sim_context_init(&fiber->context, fiber->stack, stacks->stack_size, fiber_main, fiber);
    return true;
}

/* Runs fibers that have their turn, one after the other, until none of them goes on by itself. False: the
 * grid has failed. */
static bool resume(struct sim_cta *cta) {
    struct sim_worker *worker = cta->worker;
    struct sim_stack_pool *stacks = worker->stacks;
    if (cta->turn->stack == NULL && stacks->free_count == 0 && !sim_stacks_grow(stacks)) {
        sim_run_refused(worker->run, "the stacks of a block");
        return false;
    }
    struct sim_context *to = sim_cta_next(cta);
    if (to == &worker->base)
        return false;
    sim_context_switch(&worker->base, to);
    worker->running = NULL;
    for (struct sim_fiber *fiber = cta->gone, *next; fiber != NULL; fiber = next) {
        next = fiber->next;
        release(cta, fiber);
    }
    cta->gone = NULL;
    return true;
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
    if (cta->ready_first == NULL) {
        if (!sim_barriers_unlock(cta) && !sim_cluster_goes_on(cta))
            deadlock(cta);
        return true;
    }
    cta->turn = cta->ready_first;
    cta->ready_first = NULL;
    cta->ready_last = &cta->ready_first;
    while (cta->turn != NULL)
        if (!resume(cta))
            return true;
    sim_cta_judge(cta);
    return cta->live != 0;
}

void sim_cta_discard(struct sim_cta *cta) {
    for (uint32_t i = 0; i < cta->fiber_count; i++)
        release(cta, &cta->fibers[i]);
}

void sim_rt_exit(struct sim_thread *t) {
    struct sim_cta *cta = sim_cta_of(t);
    struct sim_fiber *fiber = sim_fiber_of(t);
    end(cta, fiber);
    leave(cta, fiber);
}

enum { CALLS_PER_YIELD = 64 };

static void yield(struct sim_fiber *fiber) {
    struct sim_cta *cta = sim_cta_of(&fiber->thread);
    sim_warp_spun(fiber);
    sim_cta_ready(cta, fiber);
    sim_cta_switch(cta, fiber);
}

void sim_rt_yield(struct sim_thread *t) {
    struct sim_fiber *fiber = sim_cta_of(t)->current;
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
        yield(cta->current);
}
