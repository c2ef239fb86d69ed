/* The fibers of a block that can run, in order. */
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
