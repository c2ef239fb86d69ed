#include "thread.h"

#include <pthread.h>
#include <signal.h>

bool gf_thread_begin(void *(*run)(void *argument), void *argument, size_t stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack != 0) {
        pthread_attr_setstacksize(&attributes, stack);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}
