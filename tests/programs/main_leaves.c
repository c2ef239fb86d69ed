// The main thread ends by pthread_exit, before or after the first call of CUDA, and a signal that it has not
// blocked still reaches the process.
//
// suite: killed
#include <pthread.h>
#include <signal.h>

#include "driver.h"

static pthread_t main_thread;
static int late;

static void *goes_on(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_join(main_thread, NULL);
    if (late)
        start();
    printf("alone\n");
    fflush(stdout);
    return unused;
}

int main(int count, char **words) {
    pthread_t thread;
    late = count > 1 && strcmp(words[1], "late") == 0;
    if (!late)
        start();
    main_thread = pthread_self();
    pthread_create(&thread, NULL, goes_on, NULL);
    pthread_exit(NULL);
}
