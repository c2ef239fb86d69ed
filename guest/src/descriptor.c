/* One end of a pair of sockets, in which the handle lies for ever: who reads it leaves it there. The other
 * end hangs up when the last copy is closed, in whatever process. */
#include "descriptor.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "aside.h"

bool gf_descriptor_make(const struct gf_ipc_handle *handle, int *given, int *kept) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    if (send(ends[0], handle, sizeof *handle, MSG_NOSIGNAL) != (ssize_t)sizeof *handle) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    *kept = gf_put_aside(ends[0]);
    *given = ends[1];
    return true;
}

bool gf_descriptor_read(int given, struct gf_ipc_handle *handle) {
    return recv(given, handle, sizeof *handle, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof *handle;
}

bool gf_descriptor_is_open(int kept) {
    struct pollfd end = {.fd = kept};
    return poll(&end, 1, 0) == 0 || (end.revents & POLLHUP) == 0;
}
