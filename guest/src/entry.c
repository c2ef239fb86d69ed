#include "guest.h"

#include <pthread.h>
#include <unistd.h>

#include "driver_interop/error_log.h"
#include "functions.h"
#include "signals.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static unsigned initialising;         /* calls of cuInit that are under way, */
static _Atomic pid_t initialising_in; /* and in which process: a child has not those threads */

CUresult gf_initialising(CUresult (*initialise)(void)) {
    pthread_mutex_lock(&lock);
    initialising = initialising_in == getpid() ? initialising + 1 : 1;
    atomic_store(&initialising_in, getpid());
    pthread_mutex_unlock(&lock);
    gf_thread.initialising = true;
    struct gf_outside outside = gf_signals_outside(); /* it may stand in a queue for long */
    CUresult result = initialise();
    gf_signals_inside(outside);
    gf_thread.initialising = false;
    pthread_mutex_lock(&lock);
    if (--initialising == 0) {
        atomic_store(&initialising_in, 0);
        pthread_cond_broadcast(&ended);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* For a cuInit of another thread's: the program has called it. */
static void await_init(void) {
    if (atomic_load(&initialising_in) != getpid() || gf_thread.initialising) {
        return;
    }
    struct gf_outside outside = gf_signals_outside();
    pthread_mutex_lock(&lock);
    while (initialising > 0) {
        pthread_cond_wait(&ended, &lock);
    }
    pthread_mutex_unlock(&lock);
    gf_signals_inside(outside);
}

/* A state in which not every call works. */
CUresult gf_enter_slow(void) {
    if (gf_session_state() == GF_COLD) {
        await_init();
    }
    return gf_session_state() == GF_READY ? CUDA_SUCCESS : gf_session_error();
}

void gf_trace_result(uint16_t function, CUresult result) {
    const char *name = NULL;
    gf_cuGetErrorName(result, &name);
    gf_trace("%s: %s", gf_functions[function].name, name != NULL ? name : "an unknown result");
}

void gf_failed(uint16_t function, CUresult result) {
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        gf_unsupported_tell(function);
    }
    gf_error_log_add(gf_functions[function].name, result);
}
