#include "thread.h"

#include <signal.h>

#include "front.h"

static bool begin(pthread_t *thread, int state, void *(*run)(void *argument), void *argument, size_t stack) {
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, state);
    if (stack != 0) {
        pthread_attr_setstacksize(&attributes, stack);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = gpuferry_begin_thread(thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}

bool gf_thread_begin(void *(*run)(void *argument), void *argument, size_t stack) {
    pthread_t thread;
    return begin(&thread, PTHREAD_CREATE_DETACHED, run, argument, stack);
}

bool gf_thread_begin_joined(pthread_t *thread, void *(*run)(void *argument), void *argument, size_t stack) {
    return begin(thread, PTHREAD_CREATE_JOINABLE, run, argument, stack);
}
