#include "process.h"

#include <pthread.h>
#include <stdlib.h>

#include "channel.h"
#include "guest.h"
#include "stats.h"

/* The child has no I/O thread, and locks may be held by threads that it does not have: nothing works in it
 * any more, as with NVIDIA's driver. Closing its copy of the socket leaves the parent's connection alone. */
static void in_child(void) {
    if (atomic_exchange(&gf_session.state, GF_FORKED) != GF_FORKED) {
        gf_channel_abandon();
    }
}

void gf_process_watch(void) {
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
