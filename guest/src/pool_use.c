#include "pool_use.h"

#include "objects.h"

bool gf_pool_may_depend(uint64_t handle) {
    struct gf_memory_pool *pool = handle == 0 ? NULL : gf_memory_pool_find((CUmemoryPool)handle);
    return pool == NULL || pool->reuse[2];
}

void gf_pool_count(uint64_t handle, int64_t bytes) {
    struct gf_memory_pool *pool = handle == 0 ? NULL : gf_memory_pool_find((CUmemoryPool)handle);
    if (pool == NULL) {
        return;
    }
    uint64_t used = atomic_fetch_add(&pool->used, (uint64_t)bytes) + (uint64_t)bytes;
    uint64_t high = atomic_load(&pool->used_high);
    while (bytes > 0 && high < used && !atomic_compare_exchange_weak(&pool->used_high, &high, used)) {
    }
}
