/* barrier.cluster: all live threads of a cluster arrive before any that waits goes on. */
#include "engine.h"

void sim_cluster_release(struct sim_cluster *cluster) {
    struct sim_fiber *fiber = cluster->waiters;
    cluster->waiters = NULL;
    cluster->phase++;
    cluster->pending = 0;
    for (uint32_t rank = 0; rank < cluster->count; rank++)
        cluster->pending += cluster->blocks[rank]->live;
    while (fiber != NULL) {
        struct sim_fiber *next = fiber->next;
        sim_cta_wake(sim_cta_of(&fiber->thread), fiber);
        fiber = next;
    }
}

void sim_rt_cluster_arrive(struct sim_thread *t, uint32_t lanes) {
    struct sim_cta *cta = sim_cta_of(t);
    struct sim_fiber *fiber = cta->current;
    struct sim_cluster *cluster = cta->cluster;
    if (fiber->lanes != NULL)
        sim_cta_count(cta, fiber, fiber->lanes->live);
    else
        lanes = 1u << t->linear % WARP;
    uint32_t before = sim_cluster_arrived(cluster, fiber);
    fiber->phase = cluster->phase;
    fiber->arrived = before | lanes;
    cta->progress = true;
    cluster->pending -= sim_lane_count(lanes & ~before);
    if (cluster->pending == 0)
        sim_cluster_release(cluster);
}

/* The phase in which the thread arrived may have ended by now. */
void sim_rt_cluster_wait(struct sim_thread *t) {
    struct sim_cta *cta = sim_cta_of(t);
    struct sim_fiber *fiber = cta->current;
    if (sim_cluster_arrived(cta->cluster, fiber) == 0)
        return;
    fiber->next = cta->cluster->waiters;
    cta->cluster->waiters = fiber;
    sim_cta_wait(cta, fiber);
}

/* Of this block nobody can run, unless another one lets it. */
bool sim_cluster_goes_on(struct sim_cta *cta) {
    for (uint32_t rank = 0; rank < cta->cluster->count; rank++) {
        struct sim_cta *block = cta->cluster->blocks[rank];
        if (block->live != 0 && (block->ready_first != NULL || sim_barriers_unlock(block)))
            return true;
    }
    return false;
}
