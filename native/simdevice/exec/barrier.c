/* bar.sync, bar.arrive, bar.red: sixteen counting barriers for each block. */
#include "engine.h"

/* Those at which somebody has arrived. */
#define FOR_EACH_OPEN(barrier, cta)                                                                          \
    for (uint32_t rest_ = (cta)->open_barriers;                                                              \
         rest_ != 0 && (barrier = &(cta)->barriers[__builtin_ctz(rest_)], 1); rest_ &= rest_ - 1)

static void release(struct sim_cta *cta, struct sim_barrier *barrier) {
    struct sim_fiber *fiber = barrier->waiters;
    uint32_t predicates = barrier->predicates, arrived = barrier->arrived;
    *barrier = (struct sim_barrier){0};
    cta->open_barriers &= ~(1u << (barrier - cta->barriers));
    while (fiber != NULL) {
        struct sim_fiber *next = fiber->next;
        fiber->lane.a = predicates;
        fiber->lane.b = arrived;
        sim_cta_wake(cta, fiber);
        fiber = next;
    }
}

static bool complete(const struct sim_cta *cta, const struct sim_barrier *barrier) {
    return barrier->arrived >= (barrier->expected != 0 ? barrier->expected : cta->live);
}

/* Of a warp all live lanes arrive, with a mask of predicates; where a number of threads is given, it counts
 * in full. */
static inline __attribute__((always_inline)) struct sim_barrier *arrive(struct sim_thread *t, uint32_t id,
                                                                        uint32_t count, uint32_t predicate) {
    struct sim_cta *cta = sim_cta_of(t);
    if (id >= BARRIERS || count % WARP != 0) {
        sim_run_fail(cta->worker->run, CUDA_ERROR_LAUNCH_FAILED, "barrier %u with a count of %u", id, count);
        sim_worker_abort(cta->worker);
    }
    struct sim_barrier *barrier = &cta->barriers[id];
    cta->open_barriers |= 1u << id;
    if (barrier->arrived == 0)
        barrier->expected = count;
    const struct sim_lanes *lanes = cta->current->lanes;
    if (lanes != NULL) {
        sim_cta_count(cta, cta->current, lanes->live);
        barrier->arrived += count != 0 ? WARP : sim_lane_count(lanes->live);
        barrier->predicates += sim_lane_count(count != 0 ? predicate : predicate & lanes->live);
    } else {
        barrier->arrived++;
        barrier->predicates += predicate != 0;
    }
    cta->progress = true;
    return barrier;
}

static inline void enqueue(struct sim_barrier *barrier, struct sim_fiber *fiber) {
    fiber->next = NULL;
    *(barrier->waiters == NULL ? &barrier->waiters : &barrier->last->next) = fiber;
    barrier->last = fiber;
}

/* Waits and gives the number of true predicates and of arrivals. All go on in the order in which they came,
 * the last to come behind the others: what the first thread writes is there for those that follow it, as it
 * mostly is on a GPU where programs forget to wait for it. */
static inline __attribute__((always_inline)) void wait(struct sim_thread *t, struct sim_barrier *barrier,
                                                       uint32_t *predicates, uint32_t *arrived) {
    struct sim_cta *cta = sim_cta_of(t);
    struct sim_fiber *fiber = cta->current;
    if (complete(cta, barrier)) {
        *predicates = barrier->predicates;
        *arrived = barrier->arrived;
        release(cta, barrier);
        if (cta->ready_first != NULL) {
            sim_cta_ready(cta, fiber);
            sim_cta_switch(cta, fiber);
        }
        return;
    }
    enqueue(barrier, fiber);
    sim_cta_wait(cta, fiber);
    *predicates = fiber->lane.a;
    *arrived = fiber->lane.b;
}

void sim_rt_bar_sync(struct sim_thread *t, uint32_t id, uint32_t count) {
    uint32_t predicates, arrived;
    wait(t, arrive(t, id, count, 0), &predicates, &arrived);
}

void sim_rt_bar_arrive(struct sim_thread *t, uint32_t id, uint32_t count) {
    struct sim_barrier *barrier = arrive(t, id, count, 0);
    if (complete(sim_cta_of(t), barrier))
        release(sim_cta_of(t), barrier);
}

uint32_t sim_rt_bar_red(struct sim_thread *t, uint32_t id, uint32_t count, uint32_t op, uint32_t predicate) {
    uint32_t predicates, arrived;
    wait(t, arrive(t, id, count, predicate), &predicates, &arrived);
    return op == 0 ? predicates : op == 1 ? predicates == arrived : predicates != 0;
}

void sim_barriers_exited(struct sim_cta *cta) {
    struct sim_barrier *barrier;
    FOR_EACH_OPEN(barrier, cta) {
        if (barrier->expected == 0 && complete(cta, barrier))
            release(cta, barrier);
    }
}

/* Nothing can run: a barrier with an explicit count, which is of whole warps, may be waiting for threads that
 * have exited, or that the last warp never had. */
bool sim_barriers_unlock(struct sim_cta *cta) {
    uint32_t exited = (cta->thread_count + WARP - 1) / WARP * WARP - cta->live;
    bool released = false;
    struct sim_barrier *barrier;
    FOR_EACH_OPEN(barrier, cta) {
        if (barrier->waiters != NULL && barrier->arrived + exited >= barrier->expected &&
            barrier->expected != 0) {
            release(cta, barrier);
            released = true;
        }
    }
    return released;
}
