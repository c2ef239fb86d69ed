#include "enter.h"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { PAGE = 4096 };

/* Alone on a page that is empty in a child (MADV_WIPEONFORK): of one by _Fork or clone no handler hears. */
static union {
    _Alignas(PAGE) _Atomic int now;
    char page[PAGE];
} state;
static _Atomic bool was_ready;
static __thread bool in_host_function;

/* Worker threads and their locks do not survive a fork, so the child of an initialised process has no driver.
 */
static void after_fork_in_child(void) {
    atomic_store(&state.now, SIM_STATE_FORKED);
}

enum sim_state sim_state(void) {
    int now = atomic_load_explicit(&state.now, memory_order_acquire);
    return now == SIM_STATE_NEW && atomic_load(&was_ready) ? SIM_STATE_FORKED : (enum sim_state)now;
}

void sim_state_set_ready(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
    if (sysconf(_SC_PAGESIZE) == PAGE)
        madvise(&state, PAGE, MADV_WIPEONFORK);
    atomic_store_explicit(&state.now, SIM_STATE_READY, memory_order_release);
    atomic_store(&was_ready, true);
}

void sim_host_function(bool entered) {
    in_host_function = entered;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static _Atomic bool somebody;
static __thread bool is_me;

static void wait_for_others(bool take) {
    pthread_mutex_lock(&lock);
    while (atomic_load(&somebody) && !is_me)
        pthread_cond_wait(&ended, &lock);
    if (take)
        atomic_store(&somebody, is_me = true);
    pthread_mutex_unlock(&lock);
}

void sim_alone(void) {
    wait_for_others(true);
}

void sim_not_alone(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&somebody, is_me = false);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

CUresult sim_enter(void) {
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    if (__builtin_expect(atomic_load_explicit(&somebody, memory_order_relaxed), 0))
        wait_for_others(false);
    return sim_state() == SIM_STATE_READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
