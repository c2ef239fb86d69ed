/* Preloaded before the guest library: the socket takes its last frame on a connection, MOVED, only once it
 * has read as many bytes as $GPUFERRY_TEST_READ says, as where the socket is full and the server itself waits
 * for room. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "gpuferry/frames.h"

static atomic_size_t got;

static bool is_full(void) {
    return atomic_load(&got) < strtoul(getenv("GPUFERRY_TEST_READ"), NULL, 0);
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
    ssize_t (*next)(int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
    ssize_t n = next(fd, data, size, flags);
    if (n > 0) {
        atomic_fetch_add(&got, (size_t)n);
    }
    return n;
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    int (*next)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    int ready = next(fds, count, timeout);
    for (nfds_t i = 0; i < count && is_full(); i++) {
        if (fds[i].revents == POLLOUT) {
            ready--;
        }
        fds[i].revents &= ~POLLOUT;
    }
    return ready;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
    const struct gf_header *header = message->msg_iov[0].iov_base;
    if (message->msg_iov[0].iov_len == sizeof *header && header->op == GF_OP_MOVED && is_full()) {
        errno = EAGAIN;
        return -1;
    }
    return next(fd, message, flags);
}
