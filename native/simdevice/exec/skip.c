#include "skip.h"
#include "log.h"
#include <stdatomic.h>

static bool skipped;
static atomic_bool told;

void sim_skip_code(bool skip) {
    skipped = skip;
}

bool sim_code_skipped(void) {
    return skipped;
}

void sim_skip_tell(void) {
    if (skipped && !atomic_exchange(&told, true))
        sim_message(SIM_LOG_ERROR, "GPUFERRY_SIM_CODE=skip: no kernel runs, and what the program computes "
                                   "means nothing");
}

void sim_skip_tell_again(void) {
    atomic_store(&told, false);
}
