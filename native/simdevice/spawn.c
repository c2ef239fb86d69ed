#include "spawn.h"
#include "sim.h"
#include <pthread.h>
#include <signal.h>

int sim_spawn(void *(*work)(void *argument)) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t blocked, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* a fault stays with the thread that made it */
    sigfillset(&blocked);
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (size_t i = 0; i < SIM_COUNT(faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(&thread, &attributes, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}
