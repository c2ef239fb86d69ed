/* What the window asks of pools: how much memory each uses, and how it may be used again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* An allocation of a pool came (bytes > 0) or went; a pool that is gone counts no more. */
void gf_pool_count(uint64_t pool, int64_t bytes);
/* Whether an allocation of the pool may be made to wait for the stream that freed its memory. */
bool gf_pool_may_depend(uint64_t pool);
