/* The client's side of a TLS 1.3 handshake with a certificate, which is libssl's work; then the records are
 * ours. */
#pragma once
#include "records.h"

struct gf_tls_peer {
    const char *name;      /* host name or address that its certificate must be for */
    const char *authority; /* PEM file of the authorities to believe; null: the system's */
};

/* On a connected, blocking socket. Null with the cause, and what to do, in `why`; errno is 0 then if the peer
 * hung up, EPROTO otherwise. */
struct gf_tls *gf_tls_connect(int fd, const struct gf_tls_peer *peer, int timeout_ms, char *why,
                              size_t why_size);
