/* Operations in which the lanes of a warp meet. Each lane leaves what it gives in its fiber; the last one
 * computes for all. */
#include "engine.h"
#include <string.h>

/* So many yields of a warp's other lanes (they may wait for this very lane) are enough to answer activemask.
 */
enum { SPINS_BEFORE_ACTIVEMASK = 1024 };

#define FOR_EACH_LANE(lane, mask)                                                                            \
    for (uint32_t rest_ = (mask), lane; rest_ != 0 && (lane = (uint32_t)__builtin_ctz(rest_), 1);            \
         rest_ &= rest_ - 1)

static struct sim_lane *lane_at(struct sim_fiber *any, uint32_t lane) {
    return &any[(int64_t)lane - any->thread.linear % WARP].lane;
}

static void shuffle(struct sim_fiber *any, uint32_t arrived) {
    FOR_EACH_LANE(i, arrived) {
        struct sim_lane *lane = lane_at(any, i);
        uint32_t b = lane->b & 31, clamp = lane->c & 31, segment = lane->c >> 8 & 31;
        int32_t max = (int32_t)((i & segment) | (clamp & ~segment)), source;
        bool valid;
        switch (lane->flag) {
        case 0:
            source = (int32_t)i - (int32_t)b;
            valid = source >= max;
            break;
        case 1:
            source = (int32_t)(i + b);
            valid = source <= max;
            break;
        case 2:
            source = (int32_t)(i ^ b);
            valid = source <= max;
            break;
        default:
            source = (int32_t)((i & segment) | (b & ~segment));
            valid = source <= max;
        }
        uint32_t from = valid ? (uint32_t)source : i;
        lane->result = arrived >> from & 1 ? lane_at(any, from)->a : lane->a;
        lane->value = valid;
    }
}

static void vote(struct sim_fiber *any, uint32_t arrived) {
    uint32_t ballot = 0;
    FOR_EACH_LANE(i, arrived) {
        ballot |= (uint32_t)(lane_at(any, i)->a != 0) << i;
    }
    FOR_EACH_LANE(i, arrived) {
        struct sim_lane *lane = lane_at(any, i);
        const uint32_t results[4] = {ballot == arrived, ballot != 0, ballot == arrived || ballot == 0,
                                     ballot};
        lane->result = results[lane->b & 3];
    }
}

static void match(struct sim_fiber *any, uint32_t arrived) {
    FOR_EACH_LANE(i, arrived) {
        struct sim_lane *lane = lane_at(any, i);
        uint32_t same = 0;
        FOR_EACH_LANE(j, arrived) {
            same |= (uint32_t)(lane_at(any, j)->value == lane->value) << j;
        }
        lane->flag = same == arrived;
        lane->result = lane->b == 0 || lane->flag ? same : 0;
    }
}

static uint32_t combine(uint32_t op, bool is_signed, uint32_t x, uint32_t y) {
    bool less = is_signed ? (int32_t)x < (int32_t)y : x < y;
    switch (op) {
    case 0:
        return x + y;
    case 1:
        return less ? x : y;
    case 2:
        return less ? y : x;
    case 3:
        return x & y;
    case 4:
        return x | y;
    default:
        return x ^ y;
    }
}

static void reduce(struct sim_fiber *any, uint32_t arrived) {
    uint32_t first = (uint32_t)__builtin_ctz(arrived);
    uint32_t result = lane_at(any, first)->a;
    FOR_EACH_LANE(i, arrived & (arrived - 1)) {
        const struct sim_lane *lane = lane_at(any, i);
        result = combine(lane->b, lane->c != 0, result, lane->a);
    }
    FOR_EACH_LANE(i, arrived) {
        lane_at(any, i)->result = result;
    }
}

/* The inputs are copied first: a lane's output may be its input. Lanes that are at different instructions may
 * give different numbers of words: each gets what it has room for. */
static void gather(struct sim_fiber *any, uint32_t arrived) {
    uint32_t all[WARP][SIM_MOST_GATHERED];
    memset(all, 0, sizeof all);
    FOR_EACH_LANE(i, arrived) {
        memcpy(all[i], lane_at(any, i)->in, lane_at(any, i)->a * sizeof **all);
    }
    FOR_EACH_LANE(i, arrived) {
        const struct sim_lane *lane = lane_at(any, i);
        for (uint32_t from = 0; from < WARP; from++)
            memcpy(lane->out + from * lane->a, all[from], lane->a * sizeof **all);
    }
}

static void compute(enum sim_warp_op op, struct sim_fiber *any, uint32_t arrived) {
    switch (op) {
    case OP_SYNC:
        return;
    case OP_ACTIVEMASK:
        FOR_EACH_LANE(i, arrived) {
            lane_at(any, i)->result = arrived;
        }
        return;
    case OP_SHFL:
        shuffle(any, arrived);
        return;
    case OP_VOTE:
        vote(any, arrived);
        return;
    case OP_MATCH:
        match(any, arrived);
        return;
    case OP_REDUX:
        reduce(any, arrived);
        return;
    case OP_GATHER:
        gather(any, arrived);
        return;
    }
}

/* Ends a meeting: its lanes go on in their order, so that the first one is never overtaken by the one that
 * came last. Of `self`, which runs, the caller switches away. */
static void conclude(struct sim_cta *cta, struct sim_warp *warp, struct sim_meeting *meeting,
                     struct sim_fiber *self) {
    struct sim_fiber *lanes = &cta->fibers[(uint32_t)(warp - cta->warps) * WARP];
    uint32_t arrived = meeting->arrived;
    compute(meeting->op, &lanes[__builtin_ctz(arrived)], arrived);
    *meeting = warp->meetings[--warp->meeting_count];
    cta->progress = true;
    FOR_EACH_LANE(i, arrived) {
        if (&lanes[i] != self)
            sim_cta_wake(cta, &lanes[i]);
        else
            sim_cta_ready(cta, self);
    }
}

static bool complete(const struct sim_warp *warp, const struct sim_meeting *meeting) {
    return meeting->op != OP_ACTIVEMASK && (meeting->key & warp->live & ~meeting->arrived) == 0;
}

static void meet(struct sim_thread *t, enum sim_warp_op op, uint32_t key) {
    struct sim_fiber *fiber = sim_fiber_of(t);
    struct sim_cta *cta = sim_cta_of(t);
    struct sim_warp *warp = fiber->warp;
    struct sim_meeting *meeting = warp->meetings, *end = meeting + warp->meeting_count;
    while (meeting != end && (meeting->op != op || meeting->key != key))
        meeting++;
    if (meeting == end) {
        warp->meeting_count++;
        *meeting = (struct sim_meeting){op, key, 0};
        if (op == OP_ACTIVEMASK)
            warp->spins = 0;
    }
    meeting->arrived |= 1u << t->linear % WARP;
    if (complete(warp, meeting)) {
        conclude(cta, warp, meeting, fiber);
        sim_cta_switch(cta, fiber);
    } else
        sim_cta_wait(cta, fiber);
}

void sim_warp_exited(struct sim_fiber *fiber) {
    struct sim_cta *cta = sim_cta_of(&fiber->thread);
    struct sim_warp *warp = fiber->warp;
    for (uint32_t i = 0; i < warp->meeting_count;) {
        if (complete(warp, &warp->meetings[i]))
            conclude(cta, warp, &warp->meetings[i], NULL);
        else
            i++;
    }
    if (warp->runnable == 0)
        sim_warp_idle(cta, warp);
}

void sim_warp_idle(struct sim_cta *cta, struct sim_warp *warp) {
    for (uint32_t i = 0; i < warp->meeting_count;) {
        if (warp->meetings[i].op == OP_ACTIVEMASK)
            conclude(cta, warp, &warp->meetings[i], NULL);
        else
            i++;
    }
}

void sim_warp_spun(struct sim_fiber *fiber) {
    struct sim_warp *warp = fiber->warp;
    if (warp->meeting_count != 0 && ++warp->spins >= SPINS_BEFORE_ACTIVEMASK) {
        warp->spins = 0;
        sim_warp_idle(sim_cta_of(&fiber->thread), warp);
    }
}

void sim_rt_warp_sync(struct sim_thread *t, uint32_t mask) {
    meet(t, OP_SYNC, mask);
}

uint32_t sim_rt_activemask(struct sim_thread *t, uint32_t site) {
    meet(t, OP_ACTIVEMASK, site);
    return sim_fiber_of(t)->lane.result;
}

uint32_t sim_rt_shfl(struct sim_thread *t, uint32_t mask, uint32_t mode, uint32_t a, uint32_t b, uint32_t c,
                     uint32_t *in_range) {
    struct sim_lane *lane = &sim_fiber_of(t)->lane;
    *lane = (struct sim_lane){.a = a, .b = b, .c = c, .flag = mode};
    meet(t, OP_SHFL, mask);
    *in_range = (uint32_t)lane->value;
    return lane->result;
}

uint32_t sim_rt_vote(struct sim_thread *t, uint32_t mask, uint32_t mode, uint32_t predicate) {
    struct sim_lane *lane = &sim_fiber_of(t)->lane;
    *lane = (struct sim_lane){.a = predicate, .b = mode};
    meet(t, OP_VOTE, mask);
    return lane->result;
}

uint32_t sim_rt_match(struct sim_thread *t, uint32_t mask, uint64_t value, uint32_t all,
                      uint32_t *all_equal) {
    struct sim_lane *lane = &sim_fiber_of(t)->lane;
    *lane = (struct sim_lane){.value = value, .b = all};
    meet(t, OP_MATCH, mask);
    *all_equal = lane->flag;
    return lane->result;
}

uint32_t sim_rt_redux(struct sim_thread *t, uint32_t mask, uint32_t op, uint32_t is_signed, uint32_t value) {
    struct sim_lane *lane = &sim_fiber_of(t)->lane;
    *lane = (struct sim_lane){.a = value, .b = op, .c = is_signed};
    meet(t, OP_REDUX, mask);
    return lane->result;
}

void sim_rt_warp_gather(struct sim_thread *t, uint32_t mask, const uint32_t *in, uint32_t words,
                        uint32_t *out) {
    struct sim_lane *lane = &sim_fiber_of(t)->lane;
    *lane = (struct sim_lane){.a = words, .in = in, .out = out};
    meet(t, OP_GATHER, mask);
}
