/* Where files may not grow beyond a size (ulimit -f), a signal ends the process whose file would. What we
 * keep in files is no file of the program's: what would make one grow too far fails with EFBIG instead. */
#pragma once
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

static inline sigset_t gf_file_limit_begin(void) {
    sigset_t limit, before;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    return before;
}

static inline void gf_file_limit_end(const sigset_t *before) {
    int error = errno;
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigtimedwait(&limit, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = error;
}

/* Until the end of the block. */
#define GF_FILE_LIMIT_FAILS                                                                                  \
    __attribute__((cleanup(gf_file_limit_end), unused)) const sigset_t limited_ = gf_file_limit_begin()
