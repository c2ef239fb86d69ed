/* Preloaded before the guest library: once the program has called `gf_test_arm`, the guest's I/O thread,
 * which sleeps in poll, hears of the end of the connection only when the program has called `gf_test_let_go`,
 * as a thread that does not run for a while. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#define UNARMED_MS 10

static atomic_bool armed, asleep, let_go;

__attribute__((visibility("default"))) void gf_test_arm(void);
__attribute__((visibility("default"))) void gf_test_let_go(void);

/* Returns when the I/O thread sleeps. */
void gf_test_arm(void) {
    atomic_store(&armed, 1);
    while (!atomic_load(&asleep)) {
        usleep(1000);
    }
}

void gf_test_let_go(void) {
    atomic_store(&let_go, 1);
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    int (*next)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    if (count != 2 || atomic_load(&let_go)) { /* only the I/O thread waits for two */
        return next(fds, count, timeout);
    }
    if (!atomic_load(&armed)) {
        return next(fds, count, UNARMED_MS);
    }
    atomic_store(&asleep, 1);
    short told = 0; /* by then the connection may be another one, of which there is nothing to tell */
    while (!atomic_load(&let_go)) {
        if (told != 0) {
            usleep(1000);
        } else if (next(&fds[1], 1, 1) > 0) {
            told = fds[1].revents;
        }
    }
    if (told == 0) {
        return next(fds, count, timeout);
    }
    fds[0].revents = 0;
    fds[1].revents = told;
    return 1;
}
