/* The stream below the channel: a socket, in clear or with TLS. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct gf_tls;

struct gf_transport {
    int fd; /* to wait on, and to shut down; -1: none */
    const struct gf_transport_kind *kind;
    struct gf_tls *tls;
    bool reached; /* somebody was there, whatever came of it */
};

/* What begins an address whose server must speak TLS. */
#define GF_TLS_SCHEME "tls://"

/* Connects to "host:port", "[v6]:port", either of them behind "tls://", or "unix:/path". False with the cause
 * in `why`, and where somebody was reached with errno: 0 if the peer hung up while it shook hands. */
bool gf_transport_open(struct gf_transport *transport, const char *address, char *why, size_t why_size);
/* Whether who was told `from` may go on to `to`: never from TLS to clear. */
bool gf_transport_may_follow(const char *from, const char *to);
void gf_transport_close(struct gf_transport *transport);
/* Goes on with another connection under the same number; false with errno, and nothing has changed. */
bool gf_transport_replace(struct gf_transport *transport, struct gf_transport *by);

/* Exactly `size` bytes before the deadline (milliseconds); 0, or -1 with errno (0: the peer closed). */
int gf_transport_read(struct gf_transport *transport, void *data, size_t size, int timeout_ms);
int gf_transport_write(struct gf_transport *transport, const void *data, size_t size);

/* As recv, and waits as it does. */
ssize_t gf_transport_receive(struct gf_transport *transport, void *data, size_t size);
/* Whether something can be received that the descriptor does not tell of. */
bool gf_transport_has_input(const struct gf_transport *transport);
/* As sendmsg, without waiting. What was taken may lie here: until nothing does, call again, with no parts at
 * last. */
ssize_t gf_transport_send(struct gf_transport *transport, const struct iovec *parts, int count);
bool gf_transport_has_output(const struct gf_transport *transport);

/* In words. */
const char *gf_transport_cause(int error);
