/* What the parts of the execution engine share. A grid is run by workers; a worker runs one block after
 * another (several at once only when they wait for each other, as those of a cluster do), and the threads of
 * a block, or its warps, as fibers, or as a loop on one fiber. */
#pragma once
#include "cuda.h"
#include "execute.h"
#include "fiber.h"
#include "stacks.h"
#include "kernel_abi.h"
#include "launches.h"
#include "loader.h"
#include "log.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { WARP = SIM_WARP_SIZE, BARRIERS = 16, MAX_BLOCK_THREADS = 1024 };

/* The kernel as the engine sees it; image.c owns it. */
struct sim_kernel {
    const struct sim_kernel_info *info;
    struct sim_image *image;
    struct sim_kernel *all; /* the image's */
    uint32_t count;
    struct sim_object objects[2];            /* as made first, and optimised later */
    _Atomic(const struct sim_object *) code; /* what blocks that begin now run; NULL: there is none yet */
    _Atomic uint64_t block_ns;               /* running mean of what a block takes */
    _Atomic uint64_t quick_ns;               /* what blocks took in code that could be faster */
    _Atomic bool asked;                      /* for faster code */
    bool settled;                            /* it is there, or will not come; under tiers.c's lock */
};

/* Text that the kernels of a grid print, put out when the grid ends. */
struct sim_output {
    pthread_mutex_t lock;
    char *text;
    size_t size, capacity;
};

struct sim_run {
    const struct sim_grid *grid;
    uint64_t gridid;
    uint64_t total;         /* clusters; most have one block */
    _Atomic int error;      /* CUresult */
    _Atomic bool heap_full; /* malloc has returned NULL */
    struct sim_output output;
    struct sim_launches launches;
    uint32_t workspace[2]; /* of cooperative groups: size, barrier */
    /* under the pool's lock */
    uint32_t workers;
    struct sim_run *link;
    /* The next cluster to start. All workers write it, and read the rest at each switch: a line of its own.
     */
    _Alignas(64) _Atomic uint64_t next;
};

/* What a lane gives to a warp operation and gets from it. */
struct sim_lane {
    uint64_t value;
    uint32_t a, b, c;
    uint32_t result, flag;
    const uint32_t *in;
    uint32_t *out;
};

struct sim_fiber {
    struct sim_thread thread; /* first: a sim_thread of a fiber kernel is its fiber */
    struct sim_context context;
    uint8_t *stack;
    struct sim_fiber *next; /* in the ready queue or among a barrier's waiters */
    struct sim_lane lane;
    struct sim_lanes *lanes; /* of a fiber that runs a warp; NULL: it runs one thread */
    struct sim_warp *warp;   /* which it runs, or of which it is a lane */
    uint32_t spins;
    uint32_t phase, arrived; /* of the cluster's barrier: when lanes of it arrived last, and which */
};

struct sim_barrier {
    uint32_t expected; /* 0: all live threads */
    uint32_t arrived, predicates;
    struct sim_fiber *waiters, *last; /* in the order in which they came */
};

enum sim_warp_op { OP_SYNC, OP_ACTIVEMASK, OP_SHFL, OP_VOTE, OP_MATCH, OP_REDUX, OP_GATHER };

/* Lanes of one warp that wait for each other. */
struct sim_meeting {
    enum sim_warp_op op;
    uint32_t key; /* the mask; for activemask the site */
    uint32_t arrived;
};

struct sim_warp {
    uint32_t live;     /* lanes that have not exited */
    uint32_t runnable; /* lanes that run or could */
    uint32_t spins;    /* yields since an activemask began to wait */
    uint32_t meeting_count;
    struct sim_meeting meetings[WARP];
};

/* Blocks that see each other's shared memory. All of them run on one worker, in turns. */
struct sim_cluster {
    struct sim_cta *blocks[SIM_CLUSTER_MOST]; /* by rank */
    uint32_t count, running;                  /* how many there are, and how many have not ended */
    uint32_t phase, pending;                  /* of its barrier: live threads that have not arrived */
    struct sim_fiber *waiters;
};

struct sim_cta {
    struct sim_block block;
    struct sim_cluster *cluster, own; /* its own if it is the first block */
    const struct sim_object *code;
    struct sim_worker *worker;
    struct sim_fiber *current;
    struct sim_fiber *ready_first, **ready_last;
    struct sim_fiber *turn; /* those that have not had theirs in this round */
    struct sim_fiber *gone; /* those that have ended and have a stack still */
    uint32_t thread_count, live;
    bool asserted; /* a thread has ended because an assertion failed */
    bool waited;   /* a fiber has let others go on, so each has a stack */
    bool progress; /* since it was cleared, something other than waiting in a loop has happened */
    struct sim_barrier barriers[BARRIERS]; /* zero where nobody has arrived */
    uint32_t open_barriers;                /* a bit for each of the others */
    struct sim_warp *warps;
    struct sim_fiber *fibers;
    uint32_t fiber_count;
    struct sim_lanes *lanes;               /* of each warp, where warps are the unit */
    uint32_t lanes_capacity, described[3]; /* the shape of the block that they were described for */
    uint8_t *shared;
    size_t shared_capacity;
    uint32_t fiber_capacity, warp_capacity;
    struct sim_cta *link;
};

struct sim_worker {
    struct sim_run *run;
    const struct sim_object *code; /* of the blocks that it began last */
    uint32_t number, smid;
    struct sim_context base;     /* the scheduler, on the thread's own stack */
    struct sim_context *running; /* the fiber's context while one runs: faults are then the kernel's */
    /* Of warps' stacks and of threads', a tenth of their size and 32 times as many; and those of its grid. */
    struct sim_stack_pool pools[2], *stacks;
    struct sim_cta *spare; /* ended blocks, for reuse */
    uint8_t *signal_stack;
    size_t signal_stack_size;
    struct sim_worker *link;
    struct sim_context loop; /* of a kernel that needs one fiber only */
};

/* worker.c */
struct sim_worker *sim_worker_acquire(void);
void sim_worker_release(struct sim_worker *worker);
void sim_workers_forget(void); /* after a fork, in the child */
void sim_workers_trim(void);   /* gives memory of idle ones back */
/* Runs blocks of `run` until none is left to start. */
void sim_worker_run(struct sim_worker *worker, struct sim_run *run);

/* cta.c: a block of fibers, which is the next one of its cluster. */
bool sim_cta_begin(struct sim_cta *cta, struct sim_cluster *cluster, struct sim_worker *worker,
                   const struct sim_object *code, uint64_t index);
/* Runs every thread that can once. False: all threads have exited. */
bool sim_cta_round(struct sim_cta *cta);
/* Gives a fiber that begins its stack. False: there is none, and the scheduler has to make more: a fiber that
 * runs may have little left of its own. */
bool sim_cta_prepare(struct sim_cta *cta, struct sim_fiber *fiber);
/* Ends the grid if an assertion failed in the block. */
void sim_cta_judge(struct sim_cta *cta);
void sim_cta_discard(struct sim_cta *cta);
/* The block of a rank in a cluster, whose shared memory is there. */
void sim_block_describe(struct sim_block *block, const struct sim_run *run, uint64_t index, uint32_t rank);
/* Makes room for the shared memory of the block's cluster, of which it is the first. */
bool sim_cta_share(struct sim_cta *cta, const struct sim_grid *grid);
void sim_cta_free(struct sim_cta *cta);

/* cluster.c: all have arrived at its barrier; whether others of its blocks can run. */
void sim_cluster_release(struct sim_cluster *cluster);
bool sim_cluster_goes_on(struct sim_cta *cta);

/* barrier.c, warp.c: what changes for those who wait when a thread exits. */
void sim_barriers_exited(struct sim_cta *cta);
bool sim_barriers_unlock(struct sim_cta *cta);
void sim_warp_exited(struct sim_fiber *fiber);
void sim_warp_idle(struct sim_cta *cta, struct sim_warp *warp);
void sim_warp_spun(struct sim_fiber *fiber);

/* fail.c: ends the grid; the first error counts. */
void sim_run_fail(struct sim_run *run, CUresult error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A thread has used more of its stack than there is. */
void sim_run_overflowed(struct sim_run *run);
/* The system gives no memory for `what`: says why, and what helps. */
void sim_run_refused(struct sim_run *run, const char *what);
/* Leaves the running fiber for good, its block and its grid having failed. */
void sim_worker_abort(struct sim_worker *worker) __attribute__((noreturn));
extern _Thread_local struct sim_worker *sim_current_worker __attribute__((tls_model("initial-exec")));

/* tier_policy.c: whether a kernel is given code that was made quickly first, and a faster one later. */
enum sim_tier_policy {
    SIM_TIERS_AS_EARNED,
    SIM_TIERS_QUICK_ONLY,
    SIM_TIERS_OPTIMISED_ONLY,
    SIM_TIERS_BLOCK_BY_BLOCK,   /* the next block after the first has the faster one */
    SIM_TIERS_LAUNCH_BY_LAUNCH, /* the next launch after the first waits for it */
};
enum sim_tier_policy sim_tier_policy(void);

/* tiers.c: blocks of the kernel took so long in `code`. */
void sim_kernel_ran(struct sim_kernel *kernel, const struct sim_object *code, uint64_t ns);
/* Before blocks that keep the code they begin with: waits for faster code that is being made, no longer than
 * they would take. */
void sim_kernel_await(struct sim_kernel *kernel, uint64_t expected_ns);

/* image.c: makes optimised code, which the next blocks run. */
void sim_kernel_optimise(struct sim_kernel *kernel);
void sim_image_keep(struct sim_image *image);

/* fault.c */
void sim_faults_arm(void);
void sim_faults_forget(void); /* after a fork, in the child */

/* print.c */
void sim_output_init(struct sim_output *output);
void sim_output_flush(struct sim_output *output);

/* How many blocks a cluster of the grid has. */
static inline uint32_t sim_cluster_size(const struct sim_grid *grid) {
    return grid->cluster[0] * grid->cluster[1] * grid->cluster[2];
}
/* Bytes of a block's shared memory, what is reserved behind it included. */
static inline uint64_t sim_shared_size(uint32_t fixed, uint32_t dynamic) {
    uint64_t own = ((uint64_t)fixed + 15) / 16 * 16 + dynamic;
    return (own + 15) / 16 * 16 + SIM_SHARED_BEHIND;
}
/* How many lanes a mask names: mostly all. */
static inline uint32_t sim_lane_count(uint32_t mask) {
    return mask == ~0u ? WARP : (uint32_t)__builtin_popcount(mask);
}
/* Whether a warp is what runs on a fiber, in a block of that shape. */
static inline bool sim_in_warps(const struct sim_object *code, const uint32_t block[3]) {
    bool is_line = block[1] == 1 && block[2] == 1;
    return code->form == SIM_FORM_WARPS || (code->rows != SIM_ROWS_NONE && block[0] % WARP == 0) ||
           (code->rows == SIM_ROWS_OR_LINES && is_line);
}
static inline struct sim_fiber *sim_fiber_of(struct sim_thread *thread) {
    return (struct sim_fiber *)thread;
}
static inline struct sim_cta *sim_cta_of(struct sim_thread *thread) {
    return thread->block->engine;
}

/* The fiber can run, behind the others of its block that can. */
static inline void sim_cta_ready(struct sim_cta *cta, struct sim_fiber *fiber) {
    fiber->next = NULL;
    *cta->ready_last = fiber;
    cta->ready_last = &fiber->next;
}

/* Where the block's thread goes on: in the next fiber that has its turn, or in the scheduler. */
static inline __attribute__((always_inline)) struct sim_context *sim_cta_next(struct sim_cta *cta) {
    struct sim_worker *worker = cta->worker;
    struct sim_fiber *next = cta->turn;
    if (next == NULL || atomic_load_explicit(&worker->run->error, memory_order_relaxed) != CUDA_SUCCESS ||
        (next->stack == NULL && !sim_cta_prepare(cta, next)))
        return &worker->base;
    cta->turn = next->next;
    cta->current = next;
    worker->running = &next->context;
    return &next->context;
}

/* Lets others go on until the fiber, which is among those that can run or is woken, has its turn. */
static inline __attribute__((always_inline)) void sim_cta_switch(struct sim_cta *cta,
                                                                 struct sim_fiber *fiber) {
    cta->waited = true;
    sim_context_switch(&fiber->context, sim_cta_next(cta));
}

/* The fiber has waited, and can run. */
static inline void sim_cta_wake(struct sim_cta *cta, struct sim_fiber *fiber) {
    cta->progress = true;
    fiber->warp->runnable++;
    sim_cta_ready(cta, fiber);
}

/* Switches away until somebody wakes the fiber. A lane that waits may be the last of its warp that ran. */
static inline void sim_cta_wait(struct sim_cta *cta, struct sim_fiber *fiber) {
    struct sim_warp *warp = fiber->warp;
    if (--warp->runnable == 0 && warp->meeting_count != 0)
        sim_warp_idle(cta, warp);
    sim_cta_switch(cta, fiber);
}

/* Which lanes of the fiber's warp have arrived in this phase of the cluster's barrier. */
static inline uint32_t sim_cluster_arrived(const struct sim_cluster *cluster, const struct sim_fiber *fiber) {
    return fiber->phase == cluster->phase ? fiber->arrived : 0;
}

/* The fiber's warp has no more than these lanes left: others have exited, and the cluster's barrier does not
 * wait for them. */
static inline void sim_cta_count(struct sim_cta *cta, struct sim_fiber *fiber, uint32_t live) {
    uint32_t gone = fiber->warp->live & ~live;
    if (gone == 0)
        return;
    cta->live -= sim_lane_count(gone);
    fiber->warp->live &= live;
    struct sim_cluster *cluster = cta->cluster;
    cluster->pending -= sim_lane_count(gone & ~sim_cluster_arrived(cluster, fiber));
    if (cluster->pending == 0)
        sim_cluster_release(cluster);
}
