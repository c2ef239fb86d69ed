/* One thread, which ends after an idle second, and a queue of so many places: who finds it full waits. */
#include "later.h"
#include "monotonic.h"
#include "spawn.h"
#include <pthread.h>

enum { PLACES = 256, IDLE_SECONDS = 1 };

struct deed {
    void (*act)(void *argument);
    void *argument;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added, done = PTHREAD_COND_INITIALIZER;
static struct deed deeds[PLACES];
static unsigned first, count; /* the one that is being done is among them */
static bool working;

/* Lock held. */
static void wait_until(unsigned most) {
    while (count > most)
        pthread_cond_wait(&done, &lock);
}

/* A child would keep what is still to be freed, and has nobody who frees it. */
static void before_fork(void) {
    pthread_mutex_lock(&lock);
    wait_until(0);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&done, NULL);
    sim_cond_init_monotonic(&added);
    working = false;
}

static void init(void) {
    sim_cond_init_monotonic(&added);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct timespec deadline;
        int error = 0;
        clock_gettime(CLOCK_MONOTONIC, &deadline);
        deadline.tv_sec += IDLE_SECONDS;
        while (!count && error == 0)
            error = pthread_cond_timedwait(&added, &lock, &deadline);
        if (!count)
            break;
        struct deed deed = deeds[first];
        pthread_mutex_unlock(&lock);
        deed.act(deed.argument);
        pthread_mutex_lock(&lock);
        first = (first + 1) % PLACES;
        count--;
        pthread_cond_broadcast(&done);
    }
    working = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

void sim_later(void (*act)(void *argument), void *argument) {
    pthread_once(&once, init);
    pthread_mutex_lock(&lock);
    wait_until(PLACES - 1);
    if (!working)
        working = sim_spawn(work) == 0;
    bool queued = working;
    if (queued) {
        deeds[(first + count++) % PLACES] = (struct deed){act, argument};
        pthread_cond_signal(&added);
    }
    pthread_mutex_unlock(&lock);
    if (!queued)
        act(argument);
}

bool sim_later_wait(void) {
    pthread_mutex_lock(&lock);
    bool any = count > 0;
    wait_until(0);
    pthread_mutex_unlock(&lock);
    return any;
}
