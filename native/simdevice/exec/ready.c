/* The fibers of a block that can run, in order, and the lanes that have not exited. */
#include "engine.h"

void sim_cta_ready(struct sim_cta *cta, struct sim_fiber *fiber) {
    fiber->next = NULL;
    *cta->ready_last = fiber;
    cta->ready_last = &fiber->next;
}

void sim_cta_wake(struct sim_cta *cta, struct sim_fiber *fiber) {
    cta->progress = true;
    sim_warp_of(fiber)->runnable++;
    sim_cta_ready(cta, fiber);
}

/* Lanes that exited while others of their warp ran on. */
void sim_cta_count(struct sim_cta *cta, struct sim_fiber *fiber, uint32_t live) {
    struct sim_warp *warp = sim_warp_of(fiber);
    if ((warp->live & ~live) == 0)
        return;
    cta->live -= sim_lane_count(warp->live & ~live);
    warp->live &= live;
}
