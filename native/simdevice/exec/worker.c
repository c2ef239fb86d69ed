/* A worker runs blocks of one grid, on a thread that called sim_grid_run or one of the pool's. */
#define _GNU_SOURCE
#include "engine.h"
#include "guarded.h"
#include "mappings.h"
#include "reach.h"
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <time.h>
#include <xmmintrin.h>

/* Beside a thread's local memory: spilled registers, vprintf, libm, a signal handler of the program's. */
enum { STACK = 60 << 10, WARP_STACK = 128 << 10 };

/* Blocks whose threads do nothing but spin may wait for one that has not started, as long as a device would
 * hold it beside them. For so long nothing moves before the next one starts. */
enum { PATIENCE_NS = 250000 };
/* The next one may not fit in memory. Those that run mostly wait for each other, and a busy machine. */
#define WITHOUT_MORE_NS 30000000000u

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_worker *spare;
static uint32_t worker_number;

static struct sim_worker *create(void) {
    struct sim_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return NULL;
    size_t minimum = getauxval(AT_MINSIGSTKSZ);
    worker->signal_stack_size = (minimum + (32 << 10) + 4095) / 4096 * 4096;
    worker->signal_stack = sim_guarded_new(worker->signal_stack_size);
    if (worker->signal_stack == NULL) {
        free(worker);
        return NULL;
    }
    return worker;
}

struct sim_worker *sim_worker_acquire(void) {
    pthread_mutex_lock(&spare_lock);
    struct sim_worker *worker = spare;
    uint32_t number = worker_number;
    if (worker != NULL)
        spare = worker->link;
    else
        worker_number++;
    pthread_mutex_unlock(&spare_lock);
    if (worker == NULL && (worker = create()) != NULL)
        worker->number = number;
    return worker;
}

void sim_worker_release(struct sim_worker *worker) {
    worker->run = NULL;
    pthread_mutex_lock(&spare_lock);
    worker->link = spare;
    spare = worker;
    pthread_mutex_unlock(&spare_lock);
}

void sim_workers_forget(void) {
    pthread_mutex_init(&spare_lock, NULL);
}

static void trim(struct sim_worker *worker) {
    for (struct sim_cta *cta = worker->spare, *next; cta != NULL; cta = next) {
        next = cta->link;
        sim_cta_free(cta);
    }
    worker->spare = NULL;
    for (size_t i = 0; i < sizeof worker->pools / sizeof *worker->pools; i++)
        sim_stacks_release(&worker->pools[i]);
}

void sim_workers_trim(void) {
    pthread_mutex_lock(&spare_lock);
    struct sim_worker *idle = spare;
    spare = NULL;
    pthread_mutex_unlock(&spare_lock);
    while (idle != NULL) {
        struct sim_worker *next = idle->link;
        trim(idle);
        sim_worker_release(idle);
        idle = next;
    }
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct sim_cta *take_cta(struct sim_worker *worker) {
    struct sim_cta *cta = worker->spare;
    if (cta == NULL)
        return calloc(1, sizeof *cta);
    worker->spare = cta->link;
    return cta;
}

static void give_cta(struct sim_worker *worker, struct sim_cta *cta) {
    cta->link = worker->spare;
    worker->spare = cta;
}

static bool are_left(struct sim_run *run) {
    return atomic_load_explicit(&run->next, memory_order_relaxed) < run->total;
}

/* The grid's next cluster: most have one block. */
static bool next_cluster(struct sim_run *run, uint64_t *index) {
    if (!are_left(run) || atomic_load_explicit(&run->error, memory_order_relaxed) != CUDA_SUCCESS)
        return false;
    uint64_t turn = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
    if (turn >= run->total)
        return false;
    const struct sim_grid *grid = run->grid;
    uint64_t at = turn < run->total - grid->first ? turn + grid->first : turn + grid->first - run->total;
    *index = grid->backwards ? run->total - 1 - at : at;
    return true;
}

/* A stack that is in use cannot grow: faster code that wants more waits for the next grid. */
static const struct sim_object *code_of(struct sim_worker *worker) {
    const struct sim_object *now =
        atomic_load_explicit(&worker->run->grid->kernel->code, memory_order_acquire);
    if (now->stack <= worker->code->stack && now->unbounded <= worker->code->unbounded)
        worker->code = now;
    return worker->code;
}

/* What has been run since then: the kernel may be worth faster code. */
static void ran(struct sim_worker *worker, uint64_t *since) {
    if (!worker->code->quick)
        return;
    uint64_t now = now_ns();
    sim_kernel_ran(worker->run->grid->kernel, worker->code, now - *since);
    *since = now;
}

static void measured(struct sim_kernel *kernel, uint64_t since, uint64_t blocks) {
    if (blocks == 0)
        return;
    uint64_t old = atomic_load_explicit(&kernel->block_ns, memory_order_relaxed);
    uint64_t mean = (now_ns() - since) / blocks + 1;
    atomic_store_explicit(&kernel->block_ns, old == 0 ? mean : (3 * old + mean) / 4, memory_order_relaxed);
}

/* Starts all blocks of the grid's next cluster, if there is one. */
static bool start_one(struct sim_worker *worker, struct sim_cta **resident) {
    uint64_t index;
    if (!next_cluster(worker->run, &index))
        return false;
    const struct sim_object *code = code_of(worker);
    struct sim_cluster *cluster = NULL;
    for (uint32_t left = sim_cluster_size(worker->run->grid); left != 0; left--) {
        struct sim_cta *cta = take_cta(worker);
        if (cta != NULL && cluster == NULL) {
            cluster = &cta->own;
            cluster->count = 0;
        }
        if (cta == NULL || !sim_cta_begin(cta, cluster, worker, code, index)) {
            sim_run_refused(worker->run, "a block");
            if (cta != NULL)
                give_cta(worker, cta);
            return false;
        }
        cta->link = *resident;
        *resident = cta;
    }
    return true;
}

/* A block has ended. Others may use its shared memory until all of its cluster have. */
static void ended(struct sim_worker *worker, struct sim_cta *cta) {
    struct sim_cluster *cluster = cta->cluster;
    if (--cluster->running != 0)
        return;
    for (uint32_t rank = cluster->count; rank-- != 0;)
        give_cta(worker, cluster->blocks[rank]);
}

/* One turn for every resident block. Removes those that have ended. */
static bool turn(struct sim_worker *worker, struct sim_cta **resident) {
    bool progress = false;
    for (struct sim_cta **link = resident; *link != NULL;) {
        struct sim_cta *cta = *link;
        cta->progress = false;
        bool alive = sim_cta_round(cta);
        progress |= cta->progress || !alive;
        if (atomic_load_explicit(&worker->run->error, memory_order_relaxed) != CUDA_SUCCESS)
            return true;
        if (alive) {
            link = &cta->link;
            continue;
        }
        *link = cta->link;
        ended(worker, cta);
    }
    return progress;
}

/* Of a grid whose blocks all wait for each other: as many more as there are. One after the other, each would
 * cost a turn of those before it. */
static bool start_as_many(struct sim_worker *worker, struct sim_cta **resident, uint64_t *started) {
    uint64_t before = *started;
    while (*started < 2 * before + 1 && start_one(worker, resident))
        ++*started;
    return *started != before;
}

/* Where all that are resident have spun for so long: the next one beside them. */
static bool start_beside(struct sim_worker *worker, struct sim_cta **resident, uint64_t spun_ns) {
    uint64_t count = 0;
    for (const struct sim_cta *cta = *resident; cta != NULL; cta = cta->link)
        count++;
    uint32_t blocks = sim_cluster_size(worker->run->grid);
    if (count + blocks > worker->run->grid->resident || !are_left(worker->run))
        return false;
    if (sim_private_is_short() || !sim_stacks_reserve(worker->stacks, blocks * (*resident)->fiber_count)) {
        if (spun_ns > WITHOUT_MORE_NS)
            sim_run_refused(worker->run, "the stacks of a block that others may wait for");
        return false;
    }
    return start_one(worker, resident);
}

/* What is waited for may be done by a worker that has no processor. On a busy machine others get it, each for
 * milliseconds, and blocks that only seem to wait would hardly run: none goes as long as the last was away.
 */
static void give_way(uint64_t *not_before) {
    uint64_t from = now_ns();
    if (from < *not_before)
        return;
    sched_yield();
    uint64_t until = now_ns();
    *not_before = until + (until - from);
}

static void run_fibers(struct sim_worker *worker) {
    struct sim_run *run = worker->run;
    struct sim_cta *resident = NULL;
    uint64_t start = now_ns(), since = start, blocks = 0, started = 0, stuck_since = 0, not_before = 0;
    for (;;) {
        if (resident == NULL && !start_one(worker, &resident))
            break;
        if (turn(worker, &resident)) {
            stuck_since = 0;
            if (resident == NULL) {
                blocks++;
                ran(worker, &since);
            }
        } else if (run->grid->cooperative) {
            if (!start_as_many(worker, &resident, &started))
                give_way(&not_before);
        } else if (stuck_since == 0) {
            stuck_since = now_ns();
        } else if (now_ns() - stuck_since > PATIENCE_NS) {
            if (start_beside(worker, &resident, now_ns() - stuck_since))
                stuck_since = 0;
            else
                give_way(&not_before);
        }
        if (atomic_load_explicit(&run->error, memory_order_relaxed) != CUDA_SUCCESS)
            break;
    }
    measured(run->grid->kernel, start, blocks);
    while (resident != NULL) {
        struct sim_cta *next = resident->link;
        sim_cta_discard(resident);
        ended(worker, resident);
        resident = next;
    }
    for (struct sim_cta *cta = worker->spare; cta != NULL; cta = cta->link)
        sim_cta_discard(cta);
}

static void loop_main(void *argument) {
    struct sim_cta *cta = argument;
    struct sim_worker *worker = cta->worker;
    sim_context_entered(&worker->loop);
    struct sim_kernel *kernel = worker->run->grid->kernel;
    uint64_t start = now_ns(), since = start, blocks = 0, index;
    const uint32_t size = sim_cluster_size(worker->run->grid);
    while (next_cluster(worker->run, &index)) {
        for (uint32_t rank = 0; rank < size; rank++) {
            sim_block_describe(&cta->block, worker->run, index, rank);
            code_of(worker)->run_block(&cta->block);
        }
        blocks++;
        ran(worker, &since);
    }
    measured(kernel, start, blocks);
    sim_cta_judge(cta); /* no thread waits for another: all blocks have run */
    sim_context_leave(&worker->loop, &worker->base);
}

/* No thread waits for another: the whole grid needs one fiber, so that a fault can be left behind. */
static void run_loop(struct sim_worker *worker) {
    struct sim_cta *cta = take_cta(worker);
    uint8_t *stack = sim_stack_take(worker->stacks);
    if (cta == NULL || stack == NULL || !sim_cta_share(cta, worker->run->grid)) {
        sim_run_refused(worker->run, "a block");
    } else {
        cta->worker = worker;
        cta->current = NULL;
        cta->asserted = false;
        cta->block.engine = cta;
        cta->block.smid = worker->smid;
        cta->block.local = sim_stack_local(worker->stacks, stack);
        cta->block.local_end = cta->block.local + worker->stacks->local_size;
        sim_context_init(&worker->loop, stack, worker->stacks->stack_size, loop_main, cta);
        worker->running = &worker->loop;
        sim_context_switch(&worker->base, &worker->loop);
        worker->running = NULL;
        sim_context_destroy(&worker->loop);
    }
    if (stack != NULL && !sim_stack_give(worker->stacks, stack))
        sim_run_overflowed(worker->run);
    if (cta != NULL)
        give_cta(worker, cta);
}

void sim_worker_run(struct sim_worker *worker, struct sim_run *run) {
    const struct sim_kernel *kernel = run->grid->kernel;
    worker->run = run;
    uint32_t processors = run->grid->multiprocessors;
    worker->smid = processors != 0 ? worker->number % processors : 0;
    stack_t signal_stack = {.ss_sp = worker->signal_stack, .ss_size = worker->signal_stack_size}, old;
    bool swapped = sigaltstack(&signal_stack, &old) == 0; /* fails when called from a signal handler */
    uint32_t mxcsr = _mm_getcsr();
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    const uint16_t x87_default = 0x37f;
    _mm_setcsr(0x1f80);
    __asm__ volatile("fldcw %0" : : "m"(x87_default));
    sim_current_worker = worker;
    size_t limit = run->grid->stack_limit, local = kernel->info->local_bytes;
    size_t own = limit > local ? limit : local;
    const struct sim_object *code = atomic_load_explicit(&kernel->code, memory_order_acquire);
    worker->code = code;
    size_t lanes = sim_in_warps(code, run->grid->block) ? WARP : 1;
    size_t stack = (lanes == 1 ? STACK : WARP_STACK) + code->stack + lanes * own;
    worker->stacks = &worker->pools[lanes == 1];
    bool checked = sim_kernels_checked(), guarded = checked && code->unbounded;
    if (sim_private_is_short() || (guarded && sim_guards_are_short()))
        sim_workers_trim();
    sim_stacks_require(worker->stacks, stack, checked ? lanes * (code->local + own) : 0, guarded);
    if (code->form == SIM_FORM_LOOP)
        run_loop(worker);
    else
        run_fibers(worker);
    sim_current_worker = NULL;
    _mm_setcsr(mxcsr);
    __asm__ volatile("fldcw %0" : : "m"(x87));
    if (swapped)
        sigaltstack(&old, NULL);
    worker->run = NULL;
}
