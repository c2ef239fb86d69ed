/* How much memory each pool uses. */
#pragma once
#include <stdint.h>

/* An allocation of a pool came (bytes > 0) or went; a pool that is gone counts no more. */
void gf_pool_count(uint64_t pool, int64_t bytes);
