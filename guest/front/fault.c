#define _GNU_SOURCE /* the registers of a fault */
#include "front.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#include "handlers.h"
#include "interposed.h"

/* Taken with all signals blocked, so that a handler may ask too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before; /* the program's handler */
static _Atomic bool installed;
static _Atomic uint64_t handled; /* signals for which the program has a handler, a bit for each */
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
        gf_set_action(number, &none, NULL);
        if (sent) {
            raise(number);
        }
    }
}

/* The signals that are blocked while such a handler runs. */
static void as_by_kernel(int number, const struct sigaction *theirs, const ucontext_t *interrupted) {
    sigset_t mask;
    sigorset(&mask, &interrupted->uc_sigmask, &theirs->sa_mask);
    if ((theirs->sa_flags & SA_NODEFER) == 0) {
        sigaddset(&mask, number);
    }
    GF_NEXT(pthread_sigmask)(SIG_SETMASK, &mask, NULL);
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
    as_by_kernel(number, &theirs, registers);
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

/* The program's handlers wait until the fault is resolved: they may touch such memory, or call CUDA. */
static void install(void) {
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    uint64_t signals = atomic_load(&handled);
    sigemptyset(&ours.sa_mask);
    for (int number = 1; signals != 0; number++, signals >>= 1) {
        if ((signals & 1) != 0) {
            sigaddset(&ours.sa_mask, number);
        }
    }
    gf_set_action(SIGSEGV, &ours, NULL);
}

#pragma GCC visibility push(default)

void gpuferry_resolve_faults(bool (*resolve)(uint64_t address, bool write)) {
    struct sigaction present;
    sigset_t outside = enter();
    resolver = resolve;
    gf_set_action(SIGSEGV, NULL, &present);
    if ((present.sa_flags & SA_SIGINFO) == 0 || present.sa_sigaction != on_fault) {
        before = present;
        atomic_store(&installed, true);
        install();
    }
    leave(&outside);
}

#pragma GCC visibility pop

/* The program's handler changes behind ours. */
bool gf_fault_change(const struct sigaction *action, struct sigaction *old) {
    struct sigaction wanted = {0}, had;
    if (!atomic_load(&installed)) {
        return false;
    }
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
    return true;
}

void gf_fault_hold(int number) {
    uint64_t signal = UINT64_C(1) << (number - 1);
    if ((atomic_fetch_or(&handled, signal) & signal) == 0 && atomic_load(&installed)) {
        install();
    }
}
