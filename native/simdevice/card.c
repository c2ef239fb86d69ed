#include "card.h"
#include "config.h"
#include "sim.h"
#include "variance.h"

#define KIB(n) ((n) << 10)
#define MIB(n) ((n) << 20)

/* As their data sheets and tuning guides say, and of the H200 as it says itself. */
enum { A100, A10, L4, H200, T4 };
static const struct sim_card cards[] = {
    /* A100 */ {108, 2048, 32, KIB(163), KIB(164), 1410000, 1215000, 5120, MIB(40), MIB(30), 3, 2},
    /* A10 */ {72, 1536, 16, KIB(99), KIB(100), 1695000, 6251000, 384, MIB(6), MIB(4), 2, 32},
    /* L4 */ {58, 1536, 24, KIB(99), KIB(100), 2040000, 6251000, 192, MIB(48), MIB(33), 2, 64},
    /* H200 */ {132, 2048, 32, KIB(227), KIB(228), 1980000, 3201000, 6016, MIB(60), 39321600, 3, 2},
    /* T4 */ {40, 1024, 16, KIB(64), KIB(64), 1590000, 5001000, 256, MIB(4), 0, 3, 32},
};

/* One of the compute capability, or one that has as much of what it bounds: shared memory, threads. */
static uint64_t suitable(void) {
    switch (sim_config_get()->cc_major * 10 + sim_config_get()->cc_minor) {
    case 75:
        return T4;
    case 86:
        return A10;
    case 89:
    case 120:
    case 121:
        return L4;
    case 90:
    case 100:
    case 103:
    case 110:
        return H200;
    default:
        return A100;
    }
}

const struct sim_card *sim_card(void) {
    return &cards[(suitable() + sim_choice(SIM_OPEN_CARD, SIM_COUNT(cards))) % SIM_COUNT(cards)];
}

uint32_t sim_multiprocessors(void) {
    const int instances = sim_config_get()->instances;
    return sim_card()->multiprocessors / (uint32_t)(instances ? instances : 1);
}
