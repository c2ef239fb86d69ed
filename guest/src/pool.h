/* Stream-ordered memory: pools are books kept over the one window that all memory is from. */
#pragma once
#include <stdbool.h>

/* Makes the device's default pool. */
bool gf_pool_open(void);
