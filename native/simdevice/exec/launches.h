/* Kernels that launch kernels. Nothing waits for such a grid but the end of the one that launched it, so all
 * of them run when that one's blocks have: first what it launched in any stream, in that order, each with all
 * that it launches in turn, then what it left for its tail. */
#pragma once
#include "execute.h"
#include <pthread.h>
#include <stdbool.h>

struct sim_launch;

struct sim_launch_queue {
    struct sim_launch *first, *last;
};

/* What a grid has launched so far. */
struct sim_launches {
    pthread_mutex_t lock;
    uint32_t depth;              /* how many grids have launched each other until this one ran */
    uint32_t count;              /* in all three lists */
    uint32_t error;              /* cudaError_t of the last launch that failed */
    struct sim_launch *prepared; /* that have room for their parameters and were not launched yet */
    struct sim_launch_queue now, tail;
};

#define SIM_LAUNCHES_NONE(level) {.lock = PTHREAD_MUTEX_INITIALIZER, .depth = (level)}

/* Puts what a grid has launched before all that is left to run, and forgets the rest. */
void sim_launches_put(struct sim_launches *launches, struct sim_launch_queue *left);
/* The next one as a grid like `parent`, of a kernel that may not be compiled yet. False: none is left.
 * `parameters` keeps the grid's parameters until it is freed. */
bool sim_launches_take(struct sim_launch_queue *left, const struct sim_grid *parent, struct sim_grid *grid,
                       uint32_t *depth, void **parameters);
