/* A fault inside a kernel ends its grid with a CUDA error, and so does one of a copy or a fill in device
 * memory. Any other fault is the program's and goes to its handler. */
#define _GNU_SOURCE
#include "addresses.h"
#include "engine.h"
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { SIGNALS = sizeof signals / sizeof *signals };

static struct sigaction previous[SIGNALS];
static pthread_mutex_t arming = PTHREAD_MUTEX_INITIALIZER; /* grids begin on many threads */

/* What the handler found, for the code that it makes the fiber go on with. One fault per thread at a time. */
struct fault {
    int signal;
    uint64_t address;
    bool in_guard;
};
static _Thread_local struct fault fault __attribute__((tls_model("initial-exec")));
static _Thread_local bool chaining __attribute__((tls_model("initial-exec")));

/* Where this thread goes on if a copy or a fill of it finds no device memory. */
static _Thread_local sigjmp_buf *touching __attribute__((tls_model("initial-exec")));

/* How often memory was held and released: odd while it is held. And as often as this thread has seen. */
static _Atomic unsigned holds;
static _Thread_local unsigned seen_holds __attribute__((tls_model("initial-exec")));

/* Runs on the dead fiber's stack, emptied. */
static void landing(void) {
    struct sim_worker *worker = sim_current_worker;
    switch (fault.signal) {
    case SIGFPE:
        sim_run_fail(worker->run, CUDA_ERROR_LAUNCH_FAILED, "arithmetic fault at code address %#lx",
                     (unsigned long)fault.address);
        break;
    case SIGILL:
        sim_run_fail(worker->run, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                     "illegal instruction (unreachable code reached)");
        break;
    default:
        if (fault.in_guard)
            sim_run_overflowed(worker->run);
        else
            sim_run_fail(worker->run, CUDA_ERROR_ILLEGAL_ADDRESS, "illegal access near address %#lx%s",
                         (unsigned long)fault.address,
                         atomic_load(&worker->run->heap_full)
                             ? " (its malloc has returned NULL before: the heap is as large as "
                               "cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE) says)"
                             : "");
    }
    sim_worker_abort(worker);
}

static void divert(ucontext_t *context, struct sim_context *fiber) {
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)sim_context_rewind(fiber);
    context->uc_mcontext.gregs[REG_RBP] = 0;
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)landing;
    context->uc_mcontext.gregs[REG_EFL] &= ~0x400; /* direction flag */
}

static void chain(int number, siginfo_t *info, void *context) {
    int slot = 0;
    while (signals[slot] != number)
        slot++;
    const struct sigaction *handler = &previous[slot];
    bool can_chain = !chaining && handler->sa_handler != SIG_DFL && handler->sa_handler != SIG_IGN;
    if (!can_chain) { /* the fault happens again and ends the process */
        signal(number, SIG_DFL);
        if (info->si_code <= 0)
            raise(number);
        return;
    }
    chaining = true;
    if ((handler->sa_flags & SA_SIGINFO) != 0)
        handler->sa_sigaction(number, info, context);
    else
        handler->sa_handler(number);
    chaining = false;
}

/* Whether memory was held since the last fault of this thread, which may be why there is this one. */
static bool was_held(void) {
    unsigned now = atomic_load(&holds);
    while (now % 2 != 0) {
        sched_yield();
        now = atomic_load(&holds);
    }
    bool was = now != seen_holds;
    seen_holds = now;
    return was;
}

void sim_faults_hold(void) {
    sim_faults_arm();
    atomic_fetch_add(&holds, 1);
}

void sim_faults_release(void) {
    atomic_fetch_add(&holds, 1);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    /* The kernel puts the context right above the handler's return address. Where it is elsewhere, a handler
     * of the program's called this one, which may have called that one: then `chaining` stays. It may also be
     * left over from a handler that jumped out. */
    if ((uintptr_t)context == (uintptr_t)__builtin_frame_address(0) + 16)
        chaining = false;
    if (number == SIGSEGV && info->si_code > 0 && was_held())
        return;
    uint64_t where = (uint64_t)info->si_addr;
    if (touching != NULL && (number == SIGSEGV || number == SIGBUS) && info->si_code > 0 &&
        where >= SIM_DEVICE_BEGIN && where < SIM_DEVICE_END) {
        sim_message(SIM_LOG_ERROR, "a copy or a fill reaches no memory at %#lx", (unsigned long)where);
        siglongjmp(*touching, 1);
    }
    struct sim_worker *worker = sim_current_worker;
    if (worker == NULL || worker->running == NULL || info->si_code <= 0) {
        chain(number, info, context);
        return;
    }
    uintptr_t address = (uintptr_t)info->si_addr, low = (uintptr_t)worker->running->stack_low;
    uintptr_t top = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
    fault = (struct fault){number, address, top < low || (address < low && address >= low - 4096)};
    divert(context, worker->running);
}

static bool is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_fault;
}

/* Before every grid: the program may have set its own handlers since the last. */
void sim_faults_arm(void) {
    struct sigaction current;
    if (sigaction(SIGSEGV, NULL, &current) == 0 && is_ours(&current))
        return;
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&arming);
    for (int i = SIGNALS; i-- > 0;) { /* the one that is looked at comes last */
        if (sigaction(signals[i], NULL, &current) != 0 || is_ours(&current))
            continue;
        previous[i] = current;
        sigaction(signals[i], &ours, NULL);
    }
    pthread_mutex_unlock(&arming);
}

bool sim_faults_catch(void (*touch)(const void *), const void *what) {
    sigjmp_buf here;
    sim_faults_arm();
    if (sigsetjmp(here, 0) != 0) {
        touching = NULL;
        return false;
    }
    touching = &here;
    touch(what);
    touching = NULL;
    return true;
}

void sim_faults_forget(void) {
    pthread_mutex_init(&arming, NULL);
}
