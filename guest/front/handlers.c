/* Handlers that the program sets. A handler may call CUDA, also where it interrupts a call of CUDA, which may
 * have a lock. So ours is set in place of the program's, and asks the driver first: a signal that comes in
 * the middle of a call is put back, and comes again when the driver unblocks it. Handlers that are set
 * without libc are not known here. */
#define _GNU_SOURCE
#include "handlers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "front.h"
#include "interposed.h"

typedef void handle(int number, siginfo_t *info, void *registers);

/* The program's, as they were set last; what a handler is told beyond the number does no harm to one that
 * does not take it. Nothing here is ever unset: a child by vfork that resets its handlers has this memory
 * too. */
static struct {
    _Atomic(handle *) function;
    atomic_int flags;
} theirs[NSIG];
static bool (*_Atomic holder)(int number);

int gf_set_action(int number, const struct sigaction *action, struct sigaction *old) {
    return GF_NEXT(sigaction)(number, action, old);
}

/* What a thread does to itself by a fault or abort cannot wait. */
static bool can_wait(int number) {
    return number > 0 && number < NSIG && number != SIGSEGV && number != SIGBUS && number != SIGFPE &&
           number != SIGILL && number != SIGTRAP && number != SIGSYS && number != SIGABRT;
}

/* False: the system keeps no more signals. */
static bool put_back(int number, siginfo_t *info, ucontext_t *interrupted) {
    int error = errno;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    GF_NEXT(pthread_sigmask)(SIG_BLOCK, &one, NULL);
    bool kept = syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, info) == 0;
    if (kept) {
        sigaddset(&interrupted->uc_sigmask, number);
    }
    errno = error;
    return kept;
}

static void on_signal(int number, siginfo_t *info, void *registers) {
    bool (*hold)(int) = atomic_load(&holder);
    if (hold != NULL && hold(number) && put_back(number, info, registers)) {
        return;
    }
    if ((atomic_load(&theirs[number].flags) & (int)SA_RESETHAND) != 0) {
        gf_set_action(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    }
    atomic_load (&theirs[number].function)(number, info, registers);
}

static bool is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_signal;
}

/* What the kernel is given for what the program wants. */
static struct sigaction behind_ours(int number, const struct sigaction *wanted) {
    struct sigaction ours = *wanted;
    if (number != SIGSEGV) { /* it stays unblocked while another handler runs, too (signal_mask.c) */
        sigdelset(&ours.sa_mask, SIGSEGV);
    }
    bool is_function = wanted->sa_handler != SIG_DFL && wanted->sa_handler != SIG_IGN;
    if (is_function && can_wait(number) && !is_ours(wanted)) {
        atomic_store(&theirs[number].function, wanted->sa_sigaction);
        atomic_store(&theirs[number].flags, wanted->sa_flags);
        ours.sa_sigaction = on_signal;
        ours.sa_flags = (wanted->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
        gf_fault_hold(number);
    }
    return ours;
}

#pragma GCC visibility push(default)

void gpuferry_hold_handlers(bool (*hold)(int number)) {
    atomic_store(&holder, hold);
}

int sigaction(int number, const struct sigaction *restrict action, struct sigaction *restrict old) {
    if (number == SIGSEGV && gf_fault_change(action, old)) {
        return 0;
    }
    if (number <= 0 || number >= NSIG) {
        return gf_set_action(number, action, old);
    }
    handle *function = atomic_load(&theirs[number].function);
    int flags = atomic_load(&theirs[number].flags);
    struct sigaction ours, had;
    if (action != NULL) {
        ours = behind_ours(number, action);
    }
    int result = gf_set_action(number, action == NULL ? NULL : &ours, &had);
    if (result == 0 && old != NULL) {
        *old = had;
        if (is_ours(&had)) {
            old->sa_sigaction = function;
            old->sa_flags = flags;
        }
    }
    return result;
}

__sighandler_t signal(int number, __sighandler_t handler) {
    struct sigaction action = {.sa_handler = handler}, old;
    if (number == SIGSEGV) {
        action.sa_flags = SA_RESTART;
        if (gf_fault_change(&action, &old)) {
            return old.sa_handler;
        }
    }
    if (sigaction(number, NULL, &old) != 0) {
        return SIG_ERR;
    }
    if (GF_NEXT(signal)(number, handler) == SIG_ERR) {
        return SIG_ERR;
    }
    if (handler == SIG_DFL || handler == SIG_IGN) {
        return old.sa_handler;
    }
    gf_set_action(number, NULL, &action); /* with the flags that libc gives it */
    sigaction(number, &action, NULL);
    return old.sa_handler;
}
