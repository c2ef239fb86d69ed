/* A kernel whose optimisation takes long runs code that was made quickly until it has earned a better one,
 * which a thread in the background has made. */
#define _GNU_SOURCE
#include "engine.h"
#include "monotonic.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* About what it takes to optimise a kernel. */
static const uint64_t WORTH_NS = 50000000;

struct job {
    struct sim_kernel *kernel;
    struct job *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t settled;
static struct job *first, **last = &first;
static bool working;

static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    sim_cond_init_monotonic(&settled);
    working = false; /* its jobs are done with the next one */
}

static void init(void) {
    sim_cond_init_monotonic(&settled);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (struct job *job; (job = first) != NULL;) {
        first = job->next;
        if (first == NULL)
            last = &first;
        pthread_mutex_unlock(&lock);
        sim_kernel_optimise(job->kernel);
        pthread_mutex_lock(&lock);
        job->kernel->settled = true;
        pthread_cond_broadcast(&settled);
        pthread_mutex_unlock(&lock);
        sim_image_close(job->kernel->image);
        free(job);
        pthread_mutex_lock(&lock);
    }
    working = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static bool start_working(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, old;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void ask(struct sim_kernel *kernel) {
    pthread_once(&once, init);
    struct job *job = malloc(sizeof *job);
    if (job == NULL)
        return;
    *job = (struct job){.kernel = kernel};
    sim_image_keep(kernel->image);
    pthread_mutex_lock(&lock);
    *last = job;
    last = &job->next;
    if (!working)
        working = start_working();
    pthread_mutex_unlock(&lock);
}

void sim_kernel_ran(struct sim_kernel *kernel, const struct sim_object *code, uint64_t ns) {
    enum sim_tier_policy policy = sim_tier_policy();
    if (!code->quick || policy == SIM_TIERS_QUICK_ONLY)
        return;
    uint64_t spent = atomic_fetch_add_explicit(&kernel->quick_ns, ns, memory_order_relaxed) + ns;
    if (policy == SIM_TIERS_AS_EARNED && spent < WORTH_NS)
        return;
    if (atomic_exchange_explicit(&kernel->asked, true, memory_order_relaxed))
        return;
    if (policy != SIM_TIERS_BLOCK_BY_BLOCK) {
        ask(kernel);
        return;
    }
    sim_kernel_optimise(kernel);
    pthread_mutex_lock(&lock);
    kernel->settled = true;
    pthread_mutex_unlock(&lock);
}

static struct timespec behind(uint64_t ns) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    ns += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

void sim_kernel_await(struct sim_kernel *kernel, uint64_t expected_ns) {
    enum sim_tier_policy policy = sim_tier_policy();
    bool patient = policy == SIM_TIERS_LAUNCH_BY_LAUNCH;
    if (!atomic_load_explicit(&kernel->code, memory_order_acquire)->quick ||
        !atomic_load_explicit(&kernel->asked, memory_order_relaxed) || policy == SIM_TIERS_QUICK_ONLY ||
        (!patient && expected_ns < WORTH_NS))
        return;
    pthread_once(&once, init);
    struct timespec until = behind(expected_ns);
    pthread_mutex_lock(&lock);
    for (int result = 0; !kernel->settled && result == 0;) {
        if (!working && !(working = start_working())) /* a child's */
            break;
        result =
            patient ? pthread_cond_wait(&settled, &lock) : pthread_cond_timedwait(&settled, &lock, &until);
    }
    pthread_mutex_unlock(&lock);
}
