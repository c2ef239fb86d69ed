#include "variance.h"
#include <stdatomic.h>

static uint64_t seed; /* set before the first call that asks */
static _Atomic uint64_t draws[SIM_OPEN_COUNT];

/* splitmix64's finaliser: every bit depends on every other */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void sim_variance_set(uint64_t given) {
    seed = given;
}

static uint64_t number(enum sim_open what, uint64_t turn, uint64_t choices) {
    return mix(mix(mix(seed) + what) + turn) % choices;
}

uint64_t sim_choice(enum sim_open what, uint64_t choices) {
    return seed ? number(what, 0, choices) : 0;
}

uint64_t sim_draw(enum sim_open what, uint64_t choices) {
    if (!seed)
        return 0;
    return number(what, atomic_fetch_add_explicit(&draws[what], 1, memory_order_relaxed) + 1, choices);
}
