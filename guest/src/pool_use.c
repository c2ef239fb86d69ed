#include "pool_use.h"

#include "objects.h"
#include "session.h"

static _Atomic bool may_keep; /* spares the waits of programs whose pools keep nothing a walk */

bool gf_pool_may_depend(uint64_t handle) {
    struct gf_memory_pool *pool = handle == 0 ? NULL : gf_memory_pool_find((CUmemoryPool)handle);
    return pool == NULL || pool->reuse[2];
}

static void raise_to(_Atomic uint64_t *high, uint64_t value) {
    uint64_t before = atomic_load(high);
    while (before < value && !atomic_compare_exchange_weak(high, &before, value)) {
    }
}

void gf_pool_count(uint64_t handle, int64_t bytes) {
    struct gf_memory_pool *pool = handle == 0 ? NULL : gf_memory_pool_find((CUmemoryPool)handle);
    if (pool == NULL) {
        return;
    }
    uint64_t used = atomic_fetch_add(&pool->used, (uint64_t)bytes) + (uint64_t)bytes;
    if (bytes > 0) {
        raise_to(&pool->used_high, used);
        raise_to(&pool->reserved, used);
        raise_to(&pool->reserved_high, used);
    } else {
        atomic_store(&may_keep, true);
    }
}

void gf_pool_keep(struct gf_memory_pool *pool, uint64_t most) {
    uint64_t before = atomic_load(&pool->reserved), after;
    do {
        uint64_t used = atomic_load(&pool->used);
        after = used > most ? used : most;
    } while (after < before && !atomic_compare_exchange_weak(&pool->reserved, &before, after));
}

CUresult gf_pools_waited(CUresult result) {
    struct gf_table *table = &gf_tables[GF_HANDLE_MEMORY_POOL];
    if (result != CUDA_SUCCESS || !atomic_load_explicit(&may_keep, memory_order_relaxed)) {
        return result;
    }
    atomic_store(&may_keep, false);
    for (uint32_t slot = 0; slot < atomic_load(&table->slots); slot++) {
        struct gf_memory_pool *pool = gf_table_at(table, slot);
        if (pool != NULL) {
            gf_pool_keep(pool, pool->release_threshold);
        }
    }
    return result;
}

uint64_t gf_pools_kept(int device) {
    struct gf_table *table = &gf_tables[GF_HANDLE_MEMORY_POOL];
    uint64_t kept = 0;
    for (uint32_t slot = 0; slot < atomic_load(&table->slots); slot++) {
        struct gf_memory_pool *pool = gf_table_at(table, slot);
        if (pool != NULL && pool->device == device && pool->exporter == 0) {
            uint64_t used = atomic_load(&pool->used), reserved = atomic_load(&pool->reserved);
            kept += reserved > used ? reserved - used : 0;
        }
    }
    return kept;
}
