/* Address ranges the driver knows, in order of address, never overlapping. */
#pragma once
#include "handle.h"
#include <pthread.h>

enum sim_range_kind {
    SIM_RANGE_DEVICE,     /* cuMemAlloc */
    SIM_RANGE_POOL,       /* stream-ordered */
    SIM_RANGE_GLOBAL,     /* a module's variable */
    SIM_RANGE_MANAGED,    /* cuMemAllocManaged, __managed__ */
    SIM_RANGE_HOST,       /* cuMemHostAlloc */
    SIM_RANGE_REGISTERED, /* cuMemHostRegister */
    SIM_RANGE_MAPPED,     /* cuMemMap */
    SIM_RANGE_GRAPH,      /* allocated by a node of a graph */
    SIM_RANGE_IMPORTED,   /* another process's, opened here */
    SIM_RANGE_RESERVED,   /* cuMemAddressReserve; in a tree of its own, because mappings lie in it */
};

struct sim_range {
    uint64_t base, size;
    enum sim_range_kind kind;
    bool freeing;                /* a cuMemFreeAsync is on its way */
    bool placed;                 /* in pages that the range does not own */
    bool sync_memops;            /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    bool of_host;                /* a mapping: of the host's memory */
    CUmemAccess_flags host;      /* likewise: what the program itself may do, as cuMemSetAccess said */
    int file;                    /* what its pages are of; 0: they are private */
    unsigned flags;              /* as given to the call that made it; of a mapping: its handle types */
    uint64_t id;                 /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    struct sim_context *context; /* NULL: no context's */
    struct sim_range *previous_of_context, *next_of_context;
    bool linked; /* these two are good: it is in the tree, and some context's */
    struct sim_device *device;
    void *owner;                                  /* the pool or the physical memory; holds a reference */
    void (*returned)(void *owner, uint64_t size); /* called once it is gone; may be NULL */
    CUresult (*free_it)(uint64_t base); /* of a graph's: what cuMemFree does instead of removing it */
    uint64_t readable, writable;        /* of a mapping: bit per device that cuMemSetAccess let in */
    struct sim_range *left, *right;
    uint32_t weight;
};

struct sim_ranges {
    pthread_rwlock_t lock;
    struct sim_range *root;
};

extern struct sim_ranges sim_memory; /* all memory that can be copied to and from */

/* The tree owns what it holds. False if it overlaps a range that is there; size 0 counts as one byte. */
bool sim_ranges_insert(struct sim_ranges *ranges, struct sim_range *range);
/* Takes out the range that begins at `base` if `accept` (may be NULL) says so; the caller frees it. */
struct sim_range *sim_ranges_remove(struct sim_ranges *ranges, uint64_t base,
                                    bool (*accept)(struct sim_range *range));
/* A copy of the range that contains the address. */
bool sim_ranges_find(struct sim_ranges *ranges, uint64_t address, struct sim_range *copy);
/* A copy of the first range that ends behind the address. */
bool sim_ranges_find_next(struct sim_ranges *ranges, uint64_t address, struct sim_range *copy);
/* The base of some range that ends with the context; false: there is none. */
bool sim_ranges_find_of(struct sim_ranges *ranges, const struct sim_context *context, uint64_t *base);
/* Calls `change` on the range that contains the address, alone with the tree; what it returns, or false if
 * there is none. */
bool sim_ranges_change(struct sim_ranges *ranges, uint64_t address,
                       bool (*change)(struct sim_range *range, void *argument), void *argument);
