#define _GNU_SOURCE /* dup3 */
#include "transport.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "aside.h"
#include "transport_kind.h"

#define CONNECT_TIMEOUT_MS 10000
#define LOST_AFTER_MS 20000 /* unacknowledged data or unanswered probes for this long: the server is gone */

#ifndef TCP_USER_TIMEOUT
#define TCP_USER_TIMEOUT 18
#endif

static int connect_within(int fd, const struct sockaddr *address, socklen_t size) {
    if (connect(fd, address, size) == 0) {
        return 0;
    }
    if (errno != EINPROGRESS && errno != EINTR) {
        return -1;
    }
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int ready;
    do {
        ready = poll(&wait, 1, CONNECT_TIMEOUT_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
        errno = ETIMEDOUT;
    }
    int error = 0;
    socklen_t length = sizeof error;
    if (ready <= 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        return -1;
    }
    errno = error;
    return error == 0 ? 0 : -1;
}

static void tune_tcp(int fd) {
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5},
        {IPPROTO_TCP, TCP_KEEPINTVL, 3},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, LOST_AFTER_MS}, /* with it, probes are not counted (TCP_KEEPCNT) */
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
    }
}

static int finish(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static int connect_unix(const char *path, char *why, size_t why_size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_size, "the socket's path is longer than %zu bytes", sizeof address.sun_path - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect_within(fd, (struct sockaddr *)&address, sizeof address) == 0 && finish(fd) == 0) {
        return fd;
    }
    snprintf(why, why_size, "%s", strerror(errno));
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* The system takes a larger number for what is left of it in 16 bits. */
static bool is_port(const char *text) {
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits < 6 && text[digits] == '\0' && strtol(text, NULL, 10) < 65536;
}

static bool split_host_port(const char *address, char *host, size_t host_size, const char **port) {
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || strpbrk(address, "/ \t\r\n") != NULL || !is_port(colon + 1)) {
        return false;
    }
    const char *start = address, *end = colon;
    if (address[0] == '[' && end[-1] == ']') {
        start++;
        end--;
    }
    if ((size_t)(end - start) >= host_size) {
        return false;
    }
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *port = colon + 1;
    return true;
}

static int connect_tcp(const char *host, const char *port, char *why, size_t why_size) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        snprintf(why, why_size, "%s", gai_strerror(error));
        return -1;
    }
    int fd = -1;
    for (struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd >= 0 && connect_within(fd, a->ai_addr, a->ai_addrlen) == 0 && finish(fd) == 0) {
            tune_tcp(fd);
            break;
        }
        snprintf(why, why_size, "%s", strerror(errno));
        if (fd >= 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static ssize_t receive_clear(struct gf_transport *transport, void *data, size_t size) {
    return recv(transport->fd, data, size, 0);
}

static ssize_t send_clear(struct gf_transport *transport, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    return sendmsg(transport->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool holds_nothing(const struct gf_transport *transport) {
    return false;
}

static void end_clear(struct gf_transport *transport) {
}

static const struct gf_transport_kind clear = {receive_clear, send_clear, holds_nothing, holds_nothing,
                                               end_clear};

bool gf_transport_open(struct gf_transport *transport, const char *address, char *why, size_t why_size) {
    *transport = (struct gf_transport){.fd = -1, .kind = &clear};
    if (strncmp(address, "unix:", 5) == 0) {
        transport->fd = gf_put_aside(connect_unix(address + 5, why, why_size));
        return transport->fd >= 0;
    }
    bool secure = strncmp(address, GF_TLS_SCHEME, strlen(GF_TLS_SCHEME)) == 0;
    char host[256];
    const char *port;
    if (!split_host_port(address + (secure ? strlen(GF_TLS_SCHEME) : 0), host, sizeof host, &port)) {
        snprintf(why, why_size, "it is neither host:port, tls://host:port nor unix:/path");
        return false;
    }
    transport->fd = gf_put_aside(connect_tcp(host, port, why, why_size));
    transport->reached = transport->fd >= 0;
    if (transport->reached && secure && !gf_transport_secure(transport, host, why, why_size)) {
        int error = errno;
        gf_transport_close(transport);
        errno = error;
    }
    return transport->fd >= 0;
}

bool gf_transport_may_follow(const char *from, const char *to) {
    size_t size = strlen(GF_TLS_SCHEME);
    return strncmp(from, GF_TLS_SCHEME, size) != 0 || strncmp(to, GF_TLS_SCHEME, size) == 0;
}

void gf_transport_close(struct gf_transport *transport) {
    if (transport->fd >= 0) {
        close(transport->fd);
        transport->kind->end(transport);
        transport->fd = -1;
    }
}

bool gf_transport_replace(struct gf_transport *transport, struct gf_transport *by) {
    if (dup3(by->fd, transport->fd, O_CLOEXEC) < 0) {
        return false;
    }
    close(by->fd);
    transport->kind->end(transport);
    transport->kind = by->kind; /* but not the descriptor, whose number others wait on */
    transport->tls = by->tls;
    transport->reached = by->reached;
    by->fd = -1;
    return true;
}

static bool wait_for(const struct gf_transport *transport, short events, int timeout_ms) {
    struct pollfd wait = {.fd = transport->fd, .events = events};
    int ready;
    do {
        ready = poll(&wait, 1, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
        errno = ETIMEDOUT;
    }
    return ready > 0;
}

int gf_transport_read(struct gf_transport *transport, void *data, size_t size, int timeout_ms) {
    for (size_t done = 0; done < size;) {
        if (!gf_transport_has_input(transport) && !wait_for(transport, POLLIN, timeout_ms)) {
            return -1;
        }
        ssize_t got = gf_transport_receive(transport, (char *)data + done, size - done);
        if (got == 0) {
            errno = 0;
            return -1;
        }
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int gf_transport_write(struct gf_transport *transport, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    while (part.iov_len > 0 || gf_transport_has_output(transport)) {
        ssize_t sent = gf_transport_send(transport, &part, 1);
        if (sent < 0 && errno != EINTR && (errno != EAGAIN || !wait_for(transport, POLLOUT, -1))) {
            return -1;
        }
        part.iov_base = (char *)part.iov_base + (sent > 0 ? sent : 0);
        part.iov_len -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

ssize_t gf_transport_receive(struct gf_transport *transport, void *data, size_t size) {
    return transport->kind->receive(transport, data, size);
}

bool gf_transport_has_input(const struct gf_transport *transport) {
    return transport->kind->has_input(transport);
}

ssize_t gf_transport_send(struct gf_transport *transport, const struct iovec *parts, int count) {
    return transport->kind->send(transport, parts, count);
}

bool gf_transport_has_output(const struct gf_transport *transport) {
    return transport->kind->has_output(transport);
}

const char *gf_transport_cause(int error) {
    return error == EBADMSG ? "what came over TLS is not what was sent: somebody on the way changes it"
                            : strerror(error);
}
