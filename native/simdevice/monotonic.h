/* Waits for a limited time, by the clock that nobody sets. */
#pragma once
#include <pthread.h>
#include <time.h>

/* Whose timed waits end at times of CLOCK_MONOTONIC. */
static inline void sim_cond_init_monotonic(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
