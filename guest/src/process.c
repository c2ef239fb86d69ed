#include "process.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel.h"
#include "freeing.h"
#include "front.h"
#include "guest.h"
#include "signals.h"
#include "stats.h"
#include "thread.h"

/* A main thread that ends by pthread_exit leaves the process to threads like ours, which take no signals: one
 * more then takes what it would have, or nothing but SIGKILL would end a process that has none but ours. */
static struct {
    pthread_key_t key;
    sigset_t blocked;
    pid_t process;
    atomic_int reasons; /* it has ended, and there is a session */
} main_thread;

/* The child has no I/O thread, and locks may be held by threads that it does not have: nothing works in it
 * any more, as with NVIDIA's driver. Closing its copy of the socket leaves the parent's connection alone. */
static void in_child(void) {
    atomic_store(&main_thread.reasons, 0);
    if (atomic_exchange(&gf_session.state, GF_FORKED) != GF_FORKED) {
        gf_channel_abandon();
    }
}

static void *take_signals(void *unused) {
    pthread_sigmask(SIG_SETMASK, &main_thread.blocked, NULL);
    for (;;) {
        pause();
    }
    return unused;
}

static void replace_main(void) {
    if (atomic_fetch_add(&main_thread.reasons, 1) > 0 && main_thread.process == getpid()) {
        gf_thread_begin(take_signals, NULL, 0);
    }
}

static void main_ends(void *unused) {
    (void)unused;
    pthread_sigmask(SIG_SETMASK, NULL, &main_thread.blocked);
    main_thread.process = getpid();
    replace_main();
}

__attribute__((constructor)) static void watch_main(void) {
    if (syscall(SYS_gettid) == getpid() && pthread_key_create(&main_thread.key, main_ends) == 0) {
        pthread_setspecific(main_thread.key, &main_thread);
    }
}

/* The process ends with the last thread of the program, as far as threads of ours let it: not before all is
 * done that it gave the device. */
static void threads_ended(void) {
    if (gf_session_state() == GF_FORKED) {
        return; /* and none of ours is there */
    }
    for (CUdevice device = 0; device < gf_session.device_count; device++) {
        gf_wait_for_device(device);
    }
    exit(0);
}

void gf_process_watch(void) {
    gpuferry_when_threads_ended(threads_ended);
    gf_signals_watch();
    replace_main();
    pthread_atfork(NULL, NULL, in_child);
    gf_session_begun(in_child);
}

/* Runs after the program's own destructors, some of which make CUDA calls. Costs nothing where no call was
 * made. */
__attribute__((destructor)) static void at_exit(void) {
    if (gf_session_state() == GF_FORKED) {
        return;
    }
    gf_unsupported_tell_all();
    atomic_store(&gf_session.state,
                 GF_CLOSED); /* first: threads that still call are told why they get no answer */
    gf_channel_close();
    gf_stats_write();
}
