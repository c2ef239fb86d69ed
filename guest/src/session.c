#include "session.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct gf_session gf_session;
static void (*_Atomic in_child)(void);

/* Of a child by _Fork or clone no handler hears, but it finds the page of the state empty, if the kernel
 * knows how (4.14). */
void gf_session_begun(void (*when_in_child)(void)) {
    if (sysconf(_SC_PAGESIZE) == GF_STATE_PAGE) {
        madvise(&gf_session.state, GF_STATE_PAGE, MADV_WIPEONFORK);
    }
    atomic_store(&gf_session.here, true);
    atomic_store(&in_child, when_in_child);
}

enum gf_state gf_session_state(void) {
    enum gf_state state = atomic_load(&gf_session.state);
    void (*child)(void) = atomic_load(&in_child);
    if (state != GF_COLD || child == NULL || atomic_load(&gf_session.here)) {
        return state;
    }
    child();
    return GF_FORKED;
}

CUresult gf_session_error(void) {
    switch (gf_session_state()) {
    case GF_FORKED:
    case GF_COLD:
        return CUDA_ERROR_NOT_INITIALIZED;
    case GF_CLOSED:
        return CUDA_ERROR_DEINITIALIZED;
    case GF_READY:
    case GF_LOST:
        break;
    }
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

void gf_session_lost(void) {
    enum gf_state ready = GF_READY;
    atomic_compare_exchange_strong(&gf_session.state, &ready, GF_LOST);
}
