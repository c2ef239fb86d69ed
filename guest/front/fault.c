#define _GNU_SOURCE /* the registers of a fault */
#include "front.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#include "interposed.h"

/* Taken with all signals blocked, so that a handler may ask too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before; /* the program's handler */
static _Atomic bool installed;
static bool (*resolver)(uint64_t address, bool write);

static sigset_t enter(void) {
    sigset_t all, outside;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &outside);
    pthread_mutex_lock(&lock);
    return outside;
}

static void leave(const sigset_t *outside) {
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, outside, NULL);
}

static int set(int number, const struct sigaction *action, struct sigaction *old) {
    return GF_NEXT(sigaction)(number, action, old);
}

static bool was_write(const ucontext_t *registers) {
#ifdef __x86_64__
    return (registers->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)registers;
    return true;
#endif
}

/* What the kernel does without a handler: a fault is made again and ends the process, a signal that was sent
 * is sent again. */
static void by_default(int number, const siginfo_t *info, bool ignored) {
    bool sent = info->si_code <= 0;
    if (!(sent && ignored)) {
        struct sigaction none = {.sa_handler = SIG_DFL};
        set(number, &none, NULL);
        if (sent) {
            raise(number);
        }
    }
}

static void pass_on(int number, siginfo_t *info, void *registers) {
    sigset_t outside = enter();
    struct sigaction theirs = before;
    if ((theirs.sa_flags & (int)SA_RESETHAND) != 0) {
        before = (struct sigaction){.sa_handler = SIG_DFL};
    }
    leave(&outside);
    if (theirs.sa_handler == SIG_DFL || theirs.sa_handler == SIG_IGN) {
        by_default(number, info, theirs.sa_handler == SIG_IGN);
        return;
    }
    pthread_sigmask(SIG_BLOCK, &theirs.sa_mask, NULL);
    if ((theirs.sa_flags & SA_NODEFER) != 0) {
        sigset_t itself;
        sigemptyset(&itself);
        sigaddset(&itself, number);
        pthread_sigmask(SIG_UNBLOCK, &itself, NULL);
    }
    if ((theirs.sa_flags & SA_SIGINFO) != 0) {
        theirs.sa_sigaction(number, info, registers);
    } else {
        theirs.sa_handler(number);
    }
}

static void on_fault(int number, siginfo_t *info, void *registers) {
    int error = errno;
    if (info->si_code <= 0 || !resolver((uint64_t)info->si_addr, was_write(registers))) {
        errno = error;
        pass_on(number, info, registers);
    }
    errno = error;
}

#pragma GCC visibility push(default)

void gpuferry_resolve_faults(bool (*resolve)(uint64_t address, bool write)) {
    struct sigaction present, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigset_t outside = enter();
    resolver = resolve;
    set(SIGSEGV, NULL, &present);
    if ((present.sa_flags & SA_SIGINFO) == 0 || present.sa_sigaction != on_fault) {
        before = present;
        sigemptyset(&ours.sa_mask);
        set(SIGSEGV, &ours, NULL);
        atomic_store(&installed, true);
    }
    leave(&outside);
}

/* The program's handler changes behind ours. */
static void change(const struct sigaction *action, struct sigaction *old) {
    struct sigaction wanted = {0}, had;
    if (action != NULL) {
        wanted = *action;
    }
    sigset_t outside = enter();
    had = before;
    if (action != NULL) {
        before = wanted;
    }
    leave(&outside);
    if (old != NULL) {
        *old = had;
    }
}

int sigaction(int number, const struct sigaction *restrict action, struct sigaction *restrict old) {
    /* while another handler runs SIGSEGV stays unblocked too (signal_mask.c) */
    if (number != SIGSEGV && action != NULL && sigismember(&action->sa_mask, SIGSEGV) == 1) {
        struct sigaction open = *action;
        sigdelset(&open.sa_mask, SIGSEGV);
        return set(number, &open, old);
    }
    if (number != SIGSEGV || !atomic_load(&installed)) {
        return set(number, action, old);
    }
    change(action, old);
    return 0;
}

__sighandler_t signal(int number, __sighandler_t handler) {
    if (number != SIGSEGV || !atomic_load(&installed)) {
        return GF_NEXT(signal)(number, handler);
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    change(&action, &old);
    return old.sa_handler;
}
