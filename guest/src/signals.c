#include "signals.h"

#include "channel_state.h"
#include "front.h"
#include "stats.h"

#define PATIENCE_MS 1000

static uint64_t bit(int number) {
    return UINT64_C(1) << (number - 1);
}

static bool hold(int number) {
    if (gf_thread.inside == 0) {
        return false;
    }
    if (gf_thread.held == 0) {
        gf_thread.held_since = gf_now();
    }
    gf_thread.held |= bit(number);
    gf_news_tell(&gf_channel.replied); /* this thread may be about to wait for it */
    return true;
}

void gf_signals_watch(void) {
    gpuferry_hold_handlers(hold);
}

struct gf_outside gf_signals_outside(void) {
    struct gf_outside outside = {gf_thread.inside, gf_thread.held};
    gf_thread.inside = 0;
    gf_thread.held = 0;
    return outside;
}

void gf_signals_inside(struct gf_outside outside) {
    gf_thread.held = outside.held;
    gf_thread.inside = outside.inside;
}

void gf_signals_remove(sigset_t *mask, uint64_t signals) {
    for (int number = 1; number < NSIG; number++) {
        if ((signals & bit(number)) != 0) {
            sigdelset(mask, number);
        }
    }
}

void gf_signals_release(void) {
    sigset_t mask;
    uint64_t held = gf_thread.held;
    gf_thread.held = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    gf_signals_remove(&mask, held);
    pthread_sigmask(SIG_SETMASK, &mask, NULL); /* here they run */
}

static void run(void) {
    uint32_t inside = gf_thread.inside;
    gf_thread.inside = 0;
    gf_signals_release();
    gf_thread.inside = inside;
}

void gf_signals_overdue(void) {
    if (gf_thread.held != 0 && gf_now() - gf_thread.held_since >= PATIENCE_MS * UINT64_C(1000000)) {
        run();
    }
}

void gf_signals_run(void) {
    if (!gf_signals_may_run()) {
        gf_signals_overdue();
    } else if (gf_thread.held != 0) {
        run();
    }
}

int gf_signals_patience(void) {
    return gf_thread.held == 0 ? -1 : PATIENCE_MS;
}
