// Preloaded: what the session engine signals is lost.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

int pthread_cond_signal(pthread_cond_t *condition) {
    static int (*signal_it)(pthread_cond_t *);
    Dl_info caller;
    if (signal_it == NULL) {
        signal_it = (int (*)(pthread_cond_t *))dlsym(RTLD_NEXT, "pthread_cond_signal");
    }
    if (dladdr(__builtin_return_address(0), &caller) != 0 && strstr(caller.dli_fname, "/_core.") != NULL) {
        return 0;
    }
    return signal_it(condition);
}
