/* A condition without a lock of its own: handlers of signals may run in a wait, and may tell. */
#pragma once
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct gf_news {
    _Atomic uint32_t count, waiting;
};

static inline uint32_t gf_news_seen(struct gf_news *news) {
    return atomic_load(&news->count);
}

static inline void gf_news_tell(struct gf_news *news) {
    atomic_fetch_add(&news->count, 1);
    if (atomic_load(&news->waiting) > 0) {
        syscall(SYS_futex, &news->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

/* Until there is news since `seen`, a handler has run, or `ms` are over (-1: as long as it takes). */
static inline void gf_news_wait(struct gf_news *news, uint32_t seen, int ms) {
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    atomic_fetch_add(&news->waiting, 1);
    syscall(SYS_futex, &news->count, FUTEX_WAIT_PRIVATE, seen, ms < 0 ? NULL : &limit, NULL, 0);
    atomic_fetch_sub(&news->waiting, 1);
}
