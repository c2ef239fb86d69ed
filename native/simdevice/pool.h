/* Memory pools. Memory that was freed in stream order is its stream's to allocate at once, and everybody's
 * when the stream has got there. It stays with its pool until the host synchronises, a trim, or until it is
 * needed: it is reserved, but not used. */
#pragma once
#include "device.h"
#include "handle.h"
#include "range.h"

struct sim_pool_free; /* a cuMemFreeAsync on its way */

#define SIM_POOL_UNIT 512u /* in which NVIDIA's pools count */

struct sim_pool {
    struct sim_object object;
    struct sim_device *device;
    CUmemPoolProps properties;
    pthread_mutex_t lock;
    uint64_t used, used_high; /* as asked for, in units of SIM_POOL_UNIT */
    uint64_t taken;           /* the pages of those */
    uint64_t reserved_high;
    struct sim_pool_free *frees; /* whose streams have not got there: the latest first */
    uint64_t freeing;            /* bytes of those */
    struct sim_range *kept;      /* freed, pages still there: linked by `left`, the latest first */
    uint64_t kept_bytes;
    uint64_t release_threshold;
    uint64_t reachable;    /* bit per device that cuMemPoolSetAccess let in */
    int reuse[3];          /* FOLLOW_EVENT_DEPENDENCIES, ALLOW_OPPORTUNISTIC, ALLOW_INTERNAL_DEPENDENCIES */
    bool closed;           /* keeps nothing any more */
    uint64_t secret;       /* of one that processes share; 0: it is not */
    bool imported;         /* another process's: nothing is allocated from it here */
    struct sim_pool *next; /* of all that are open */
};

CUresult sim_pool_create_default(struct sim_device *device);
struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *properties);
uint64_t sim_pool_handle(const struct sim_pool *pool);
/* The pool of a handle, with a reference: else NOT_INITIALIZED or INVALID_VALUE. */
CUresult sim_pool_acquire(CUmemoryPool handle, struct sim_pool **pool);
/* Used, being freed and kept. Lock held. */
uint64_t sim_pool_reserved(const struct sim_pool *pool);
/* Puts memory that was freed aside, out of reach, so that a use of it is a fault still; false: it cannot.
 * Lock held. */
bool sim_pool_keep(struct sim_pool *pool, struct sim_range *range);
/* Takes memory of that size out again; NULL: none is kept. Lock held. */
struct sim_range *sim_pool_take_kept(struct sim_pool *pool, uint64_t bytes);
/* Gives kept memory back as long as `least` bytes stay reserved. Lock held. */
void sim_pool_shrink(struct sim_pool *pool, uint64_t least);
/* Gives back all that the device's pools keep. */
void sim_pools_shrink(const struct sim_device *device);
/* What the host's waiting does to all pools: each gives back what it holds beyond its release threshold. */
void sim_pools_settle(void);
