/* What differs between a socket in clear and one with TLS. */
#pragma once
#include "transport.h"

struct gf_transport_kind {
    ssize_t (*receive)(struct gf_transport *transport, void *data, size_t size);
    ssize_t (*send)(struct gf_transport *transport, const struct iovec *parts, int count);
    bool (*has_input)(const struct gf_transport *transport);
    bool (*has_output)(const struct gf_transport *transport);
    void (*end)(struct gf_transport *transport); /* the descriptor excepted */
};

/* TLS from here on, with whoever proves to be `host`, or what GPUFERRY_TLS_NAME says. */
bool gf_transport_secure(struct gf_transport *transport, const char *host, char *why, size_t why_size);
