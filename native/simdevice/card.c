#include "card.h"
#include "config.h"
#include "sim.h"
#include "variance.h"

#define KIB(n) ((n) << 10)
#define MIB(n) ((n) << 20)

/* As their data sheets and tuning guides say. The first is what programs see unless something varies. */
static const struct sim_card cards[] = {
    /* A100 */ {108, 2048, 32, KIB(163), KIB(164), 1410000, 1215000, 5120, MIB(40), MIB(30), 3, 2},
    /* A10 */ {72, 1536, 16, KIB(99), KIB(100), 1695000, 6251000, 384, MIB(6), MIB(4), 2, 32},
    /* L4 */ {58, 1536, 24, KIB(99), KIB(100), 2040000, 6251000, 192, MIB(48), MIB(33), 2, 64},
    /* H100 */ {132, 2048, 32, KIB(227), KIB(228), 1980000, 2619000, 5120, MIB(50), MIB(31), 3, 2},
    /* T4 */ {40, 1024, 16, KIB(64), KIB(64), 1590000, 5001000, 256, MIB(4), 0, 3, 32},
};

const struct sim_card *sim_card(void) {
    return &cards[sim_choice(SIM_OPEN_CARD, SIM_COUNT(cards))];
}

uint32_t sim_multiprocessors(void) {
    const int instances = sim_config_get()->instances;
    return sim_card()->multiprocessors / (uint32_t)(instances ? instances : 1);
}
