// Preloaded: what the session engine signals is lost (SIGNALS), or it cannot start threads (CREATION).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static bool is_engine(const void *caller) {
    Dl_info found;
    return dladdr(caller, &found) != 0 && strstr(found.dli_fname, "/_core.") != NULL;
}

#ifdef SIGNALS
int pthread_cond_signal(pthread_cond_t *condition) {
    int (*signal_it)(pthread_cond_t *) = (int (*)(pthread_cond_t *))dlsym(RTLD_NEXT, "pthread_cond_signal");
    return is_engine(__builtin_return_address(0)) ? 0 : signal_it(condition);
}
#endif

#ifdef CREATION
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *),
                   void *argument) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT,
                                                                                       "pthread_create");
    return is_engine(__builtin_return_address(0)) ? EAGAIN : create(thread, attributes, work, argument);
}
#endif
