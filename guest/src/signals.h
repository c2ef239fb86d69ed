/* Handlers of signals that interrupt a thread of the program's in a call of ours. It may have a lock or a
 * role that a call in the handler waits for, so they are held back (front.h) until the thread waits for an
 * answer, or the call ends. */
#pragma once
#include <signal.h>

#include "guest.h"

/* From now on handlers are held back. */
void gf_signals_watch(void);

/* What handlers that run in a wait must not find, and the wait finds again. */
struct gf_outside {
    uint32_t inside;
    uint64_t held;
};

/* Whether handlers may run where this thread waits: its caller has no lock that they could wait for. */
static inline bool gf_signals_may_run(void) {
    return gf_thread.locked == 0 && !gf_thread.sharing;
}

/* Takes signals, a bit for each, out of a mask. */
void gf_signals_remove(sigset_t *mask, uint64_t signals);

/* From here to the end handlers run as outside of all calls. */
struct gf_outside gf_signals_outside(void);
void gf_signals_inside(struct gf_outside outside);

/* Runs what is held back, where the caller has neither lock nor role; else see gf_signals_overdue. */
void gf_signals_run(void);
/* Runs what has been held back for a second: the server does not go on, and a handler that ends the process
 * or says what it waits for is worth more than one that may call CUDA. */
void gf_signals_overdue(void);
/* How long to wait at most before gf_signals_overdue is called again, in milliseconds; -1: as long as it
 * takes. */
int gf_signals_patience(void);
