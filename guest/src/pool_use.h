/* What the window asks of pools: how much memory each uses, and how it may be used again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

/* An allocation of a pool came (bytes > 0) or went; a pool that is gone counts no more. */
void gf_pool_count(uint64_t pool, int64_t bytes);
/* Whether an allocation of the pool may be made to wait for the stream that freed its memory. */
bool gf_pool_may_depend(uint64_t pool);

struct gf_memory_pool;
/* A pool keeps at most so much memory, beside what its allocations have. */
void gf_pool_keep(struct gf_memory_pool *pool, uint64_t most);
/* A wait is over, with this result, which is returned: pools keep what their thresholds say. */
CUresult gf_pools_waited(CUresult result);
/* Bytes that the device's pools keep and no allocation has. */
uint64_t gf_pools_kept(int device);
