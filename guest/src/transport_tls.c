#include <stdlib.h>
#include <sys/socket.h>

#include "tls/handshake.h"
#include "transport_kind.h"

#define HANDSHAKE_TIMEOUT_MS 10000

static ssize_t receive_tls(struct gf_transport *transport, void *data, size_t size) {
    return gf_tls_receive(transport->tls, transport->fd, data, size, 0);
}

static ssize_t send_tls(struct gf_transport *transport, const struct iovec *parts, int count) {
    return gf_tls_send(transport->tls, transport->fd, parts, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool has_input(const struct gf_transport *transport) {
    return gf_tls_has_input(transport->tls);
}

static bool has_output(const struct gf_transport *transport) {
    return gf_tls_has_output(transport->tls);
}

static void end_tls(struct gf_transport *transport) {
    gf_tls_end(transport->tls);
    transport->tls = NULL;
}

static const struct gf_transport_kind tls = {receive_tls, send_tls, has_input, has_output, end_tls};

static const char *chosen(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : otherwise;
}

bool gf_transport_secure(struct gf_transport *transport, const char *host, char *why, size_t why_size) {
    const struct gf_tls_peer peer = {
        .name = chosen("GPUFERRY_TLS_NAME", host),
        .authority = chosen("GPUFERRY_TLS_CA", NULL),
    };
    struct gf_tls *made = gf_tls_connect(transport->fd, &peer, HANDSHAKE_TIMEOUT_MS, why, why_size);
    if (made != NULL) {
        transport->tls = made;
        transport->kind = &tls;
    }
    return made != NULL;
}
