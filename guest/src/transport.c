#include "transport.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
        {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 3},
        {IPPROTO_TCP, TCP_KEEPCNT, 5},  {IPPROTO_TCP, TCP_USER_TIMEOUT, LOST_AFTER_MS},
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

static bool split_host_port(const char *address, char *host, size_t host_size, const char **port) {
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon[1] == '\0' || colon == address) {
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

int gf_transport_connect(const char *address, char *why, size_t why_size) {
    if (strncmp(address, "unix:", 5) == 0) {
        return connect_unix(address + 5, why, why_size);
    }
    char host[256];
    const char *port;
    if (!split_host_port(address, host, sizeof host, &port)) {
        snprintf(why, why_size, "it is neither host:port nor unix:/path");
        return -1;
    }
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

int gf_transport_read(int fd, void *data, size_t size, int timeout_ms) {
    for (size_t done = 0; done < size;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = poll(&wait, 1, timeout_ms);
        if (ready == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        ssize_t got = ready < 0 ? -1 : recv(fd, (char *)data + done, size - done, 0);
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

int gf_transport_write(int fd, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(fd, (const char *)data + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return -1;
        }
        done += sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}
