/* When kernels get optimised code: GPUFERRY_SIM_TIER, for tests. */
#include "engine.h"
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum sim_tier_policy policy;

static void init(void) {
    static const char *const names[] = {[SIM_TIERS_AS_EARNED] = "",
                                        [SIM_TIERS_QUICK_ONLY] = "quick",
                                        [SIM_TIERS_OPTIMISED_ONLY] = "optimised",
                                        [SIM_TIERS_BLOCK_BY_BLOCK] = "block",
                                        [SIM_TIERS_LAUNCH_BY_LAUNCH] = "launch"};
    const char *setting = getenv("GPUFERRY_SIM_TIER");
    for (size_t i = 0; setting != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(setting, names[i]) == 0)
            policy = (enum sim_tier_policy)i;
}

enum sim_tier_policy sim_tier_policy(void) {
    pthread_once(&once, init);
    return policy;
}
