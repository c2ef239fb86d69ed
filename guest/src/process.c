#include "process.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel.h"
#include "guest.h"
#include "stats.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static bool watched;

/* The child has no I/O thread, and locks may be held by threads that it does not have: nothing works in it
 * any more, as with NVIDIA's driver. Closing its copy of the socket leaves the parent's connection alone. */
static void in_child(void) {
    if (atomic_exchange(&gf_session.state, GF_FORKED) != GF_FORKED) {
        gf_channel_abandon();
    }
}

/* Of a child by _Fork or clone no handler hears, but it finds the page of the state empty, if the kernel
 * knows how (4.14). */
void gf_process_watch(void) {
    pthread_atfork(NULL, NULL, in_child);
    if (sysconf(_SC_PAGESIZE) == GF_STATE_PAGE) {
        madvise(&gf_session.state, GF_STATE_PAGE, MADV_WIPEONFORK);
    }
    atomic_store(&gf_session.here, true);
    watched = true;
}

enum gf_state gf_session_state(void) {
    enum gf_state state = atomic_load(&gf_session.state);
    if (state != GF_COLD || !watched || atomic_load(&gf_session.here)) {
        return state;
    }
    in_child();
    return GF_FORKED;
}

/* Runs after the program's own destructors, some of which make CUDA calls. Costs nothing where no call was
 * made. */
__attribute__((destructor)) static void at_exit(void) {
    if (gf_session_state() == GF_FORKED) {
        return;
    }
    gf_unsupported_tell_all();
    gf_channel_close();
    atomic_store(&gf_session.state, GF_CLOSED);
    gf_stats_write();
}
