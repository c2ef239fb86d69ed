/* Masks of signals. Who blocks SIGSEGV would be killed by the first fault, so it stays unblocked: programs
 * block all signals in their helping threads, or while a handler runs, and CUDA's shared memory needs none.
 * They are told the mask that they set. */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "interposed.h"

static _Thread_local bool blocked; /* by what this thread has set */

static int set_mask(int (*next)(int, const sigset_t *, sigset_t *), int how, const sigset_t *mask,
                    sigset_t *old) {
    bool was = blocked, named = mask != NULL && sigismember(mask, SIGSEGV) == 1;
    sigset_t open;
    if (named && how != SIG_UNBLOCK) {
        open = *mask;
        sigdelset(&open, SIGSEGV);
    }
    int result = next(how, named && how != SIG_UNBLOCK ? &open : mask, old);
    if (result != 0) {
        return result;
    }
    if (old != NULL && was) {
        sigaddset(old, SIGSEGV);
    }
    if (mask != NULL) {
        blocked = how == SIG_SETMASK ? named : how == SIG_BLOCK ? was || named : was && !named;
    }
    return 0;
}

#pragma GCC visibility push(default)

int pthread_sigmask(int how, const sigset_t *mask, sigset_t *old) {
    return set_mask(GF_NEXT(pthread_sigmask), how, mask, old);
}

int sigprocmask(int how, const sigset_t *mask, sigset_t *old) {
    return set_mask(GF_NEXT(sigprocmask), how, mask, old);
}
