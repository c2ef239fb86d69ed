/* A kernel whose optimisation takes long runs code that was made quickly until it has earned a better one,
 * which a thread in the background has made. */
#include "engine.h"
#include <signal.h>
#include <stdlib.h>

/* About what it takes to optimise a kernel. */
static const uint64_t WORTH_NS = 50000000;

struct job {
    struct sim_kernel *kernel;
    struct job *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct job *first, **last = &first;
static bool working;

static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    working = false; /* its jobs are done with the next one */
}

static void init(void) {
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
    if (policy == SIM_TIERS_BLOCK_BY_BLOCK)
        sim_kernel_optimise(kernel);
    else
        ask(kernel);
}
