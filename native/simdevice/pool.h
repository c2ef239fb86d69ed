/* Memory pools: who may allocate, what is accounted. The pages themselves are made and given back one by one.
 */
#pragma once
#include "device.h"

struct sim_pool;

CUresult sim_pool_create_default(struct sim_device *device);
uint64_t sim_pool_handle(const struct sim_pool *pool);
