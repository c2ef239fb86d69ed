/* Grids and the pool of threads. The thread that launches a grid works on it itself, so that every grid makes
 * progress whatever the others do; threads of the pool help where it pays. */
#define _GNU_SOURCE
#include "device_limits.h"
#include "engine.h"
#include "monotonic.h"
#include "skip.h"
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A grid expected to take less than this is not worth waking others for. */
enum { ALONE_NS = 50000, IDLE_SECONDS = 2, MOST_THREADS = 256, DEFAULT_MOST_THREADS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work, left;
static struct sim_run *runs; /* those that take helpers, the next to be helped first */
static uint32_t threads, idle;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t last_gridid;

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&lock);
}

static void init_lock(void) {
    pthread_mutex_init(&lock, NULL);
    sim_cond_init_monotonic(&work);
    pthread_cond_init(&left, NULL);
}

/* The child has this one thread; what the others were running is not its business. */
static void after_fork_in_child(void) {
    init_lock();
    sim_workers_forget();
    sim_faults_forget();
    sim_heap_forget();
    threads = idle = 0;
    runs = NULL;
}

static void init(void) {
    init_lock();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static uint32_t thread_target(void) {
    const char *setting = getenv("GPUFERRY_SIM_THREADS");
    if (setting != NULL && *setting != '\0') {
        char *end;
        long count = strtol(setting, &end, 10);
        if (*end == '\0' && count >= 1 && count <= MOST_THREADS)
            return (uint32_t)count;
        sim_message(SIM_LOG_ERROR, "GPUFERRY_SIM_THREADS=%s is not a number from 1 to %d", setting,
                    MOST_THREADS);
    }
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return (uint32_t)(cores < DEFAULT_MOST_THREADS ? cores : DEFAULT_MOST_THREADS);
}

static bool has_blocks(const struct sim_run *run) {
    return atomic_load_explicit(&run->next, memory_order_relaxed) < run->total &&
           atomic_load_explicit(&run->error, memory_order_relaxed) == CUDA_SUCCESS;
}

/* Takes the first run that has blocks and moves it to the end, so that helpers spread. */
static struct sim_run *next_run(void) {
    for (struct sim_run **link = &runs; *link != NULL; link = &(*link)->link) {
        struct sim_run *run = *link;
        if (!has_blocks(run))
            continue;
        *link = run->link;
        run->link = NULL;
        struct sim_run **end = link;
        while (*end != NULL)
            end = &(*end)->link;
        *end = run;
        return run;
    }
    return NULL;
}

static void help(struct sim_run *run) {
    run->workers++;
    pthread_mutex_unlock(&lock);
    struct sim_worker *worker = sim_worker_acquire();
    if (worker != NULL) {
        sim_worker_run(worker, run);
        sim_worker_release(worker);
    } else {
        sched_yield();
    }
    pthread_mutex_lock(&lock);
    if (--run->workers == 0)
        pthread_cond_broadcast(&left);
}

static void *helper(void *unused) {
    (void)unused;
    bool trimmed = false;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct sim_run *run = next_run();
        if (run != NULL) {
            help(run);
            trimmed = false;
            continue;
        }
        idle++;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += IDLE_SECONDS;
        int result = trimmed ? pthread_cond_wait(&work, &lock) : pthread_cond_timedwait(&work, &lock, &until);
        idle--;
        if (result == ETIMEDOUT) {
            pthread_mutex_unlock(&lock);
            sim_workers_trim();
            pthread_mutex_lock(&lock);
            trimmed = true;
        }
    }
    return NULL;
}

/* Signals of the program are not for the pool's threads, except those that a kernel's fault raises. */
static void start_thread(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN + (256 << 10));
    sigset_t most, old;
    sigfillset(&most);
    sigdelset(&most, SIGSEGV);
    sigdelset(&most, SIGBUS);
    sigdelset(&most, SIGFPE);
    sigdelset(&most, SIGILL);
    pthread_sigmask(SIG_SETMASK, &most, &old);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, helper, NULL) == 0)
        threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
}

/* How many threads a grid may use. Lock held. */
static uint32_t most_threads(void) {
    static uint32_t target;
    if (target == 0)
        target = thread_target();
    return target;
}

/* Faster code arrives between blocks. Where all of them begin at once, it has to be there before. */
static void await_code(const struct sim_run *run, uint64_t block_ns) {
    pthread_mutex_lock(&lock);
    bool at_once = run->grid->cooperative || run->total <= most_threads();
    pthread_mutex_unlock(&lock);
    if (at_once)
        sim_kernel_await(run->grid->kernel, block_ns);
}

static void ask_for_help(struct sim_run *run) {
    uint64_t wanted = run->total - 1;
    pthread_mutex_lock(&lock);
    uint32_t target = most_threads();
    run->link = runs;
    runs = run;
    while (threads + 1 < target && threads < wanted && idle < wanted) {
        uint32_t before = threads;
        start_thread();
        if (threads == before)
            break;
    }
    for (uint64_t i = 0; i < wanted && i < idle; i++)
        pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
}

static void wait_for_helpers(struct sim_run *run) {
    pthread_mutex_lock(&lock);
    struct sim_run **link = &runs;
    while (*link != run)
        link = &(*link)->link;
    *link = run->link;
    while (run->workers != 0)
        pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
}

/* One grid; what its kernels have launched is put before what is left to run. */
static CUresult run_one(const struct sim_grid *grid, uint32_t depth, struct sim_launch_queue *left) {
    struct sim_run run = {.grid = grid,
                          .launches = SIM_LAUNCHES_NONE(depth),
                          .gridid = atomic_fetch_add(&last_gridid, 1) + 1,
                          .total = (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2] /
                                   sim_cluster_size(grid)};
    sim_faults_arm();
    struct sim_worker *worker = sim_worker_acquire();
    if (worker == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_output_init(&run.output);
    uint64_t mean = atomic_load_explicit(&grid->kernel->block_ns, memory_order_relaxed);
    await_code(&run, mean);
    bool alone = run.total == 1 || (mean != 0 && mean * run.total < ALONE_NS);
    if (!alone)
        ask_for_help(&run);
    sim_worker_run(worker, &run);
    sim_worker_release(worker);
    if (!alone)
        wait_for_helpers(&run);
    if (run.output.capacity != 0 && grid->used != NULL)
        atomic_fetch_or(grid->used, SIM_USED_OUTPUT);
    sim_output_flush(&run.output);
    sim_launches_put(&run.launches, left);
    return (CUresult)atomic_load(&run.error);
}

CUresult sim_grid_run(const struct sim_grid *grid) {
    struct sim_launch_queue left = {0};
    struct sim_grid launched;
    uint32_t depth;
    void *parameters;
    if (sim_code_skipped())
        return CUDA_SUCCESS;
    pthread_once(&once, init);
    CUresult result = run_one(grid, 0, &left);
    while (sim_launches_take(&left, grid, &launched, &depth, &parameters)) {
        struct sim_kernel *kernel = launched.kernel;
        if (result == CUDA_SUCCESS)
            result = sim_kernel_prepare(kernel->image, (uint32_t)(kernel - kernel->all), &launched.kernel);
        if (result == CUDA_SUCCESS)
            result = run_one(&launched, depth, &left);
        free(parameters);
    }
    return result;
}

void sim_grids_forget(void) {
    sim_workers_trim();
    sim_heap_reset();
    sim_skip_tell_again();
}
