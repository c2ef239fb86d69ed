/* Stream-ordered memory: pools are books kept over the one window that all memory is from. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Makes the device's default pool. */
bool gf_pool_open(void);
/* An allocation of a pool came (bytes > 0) or went; a pool that is gone counts no more. */
void gf_pool_count(uint64_t pool, int64_t bytes);
