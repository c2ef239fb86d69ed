/* A program may cancel a thread of its own (pthread_cancel) that waits in a call of ours. It ends behind the
 * call: in the middle of it it would take a lock along, and every later call of the process would hang. */
#pragma once
#include <pthread.h>

static inline int gf_uncancelled_begin(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void gf_uncancelled_end(const int *before) {
    pthread_setcancelstate(*before, NULL);
}

/* Until the end of the block. */
#define GF_UNCANCELLED                                                                                       \
    __attribute__((cleanup(gf_uncancelled_end), unused)) const int uncancelled_ = gf_uncancelled_begin()
