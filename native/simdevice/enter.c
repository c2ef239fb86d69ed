#include "enter.h"
#include <pthread.h>

static _Atomic int state = SIM_STATE_NEW;
static __thread bool in_host_function;

/* Worker threads and their locks do not survive a fork, so the child of an initialised process has no driver.
 */
static void after_fork_in_child(void) {
    if (atomic_load(&state) == SIM_STATE_READY)
        atomic_store(&state, SIM_STATE_FORKED);
}

enum sim_state sim_state(void) {
    return (enum sim_state)atomic_load_explicit(&state, memory_order_acquire);
}

void sim_state_set_ready(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atomic_store_explicit(&state, SIM_STATE_READY, memory_order_release);
}

void sim_host_function(bool entered) {
    in_host_function = entered;
}

CUresult sim_enter(void) {
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    return sim_state() == SIM_STATE_READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
