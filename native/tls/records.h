/* The records of TLS 1.3 (RFC 8446, 5) on a socket whose handshake is over: keys from the traffic secrets, as
 * a kernel with TLS would take them over. AES-GCM is OpenSSL's. What is here can be saved, and go on in
 * another process (DESIGN.md).
 *
 * Receiving and sending touch different halves: one thread at a time may do either. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GF_TLS_AES_128_GCM_SHA256 0x1301
#define GF_TLS_AES_256_GCM_SHA384 0x1302
#define GF_TLS_SECRET_MAX         48 /* bytes of a traffic secret, which is as long as the suite's hash */
#define GF_TLS_STATE_MAX          (256u << 10)

struct gf_tls;

/* Null with the cause in `why`. `early`: what came from the socket behind the handshake, up to 64 KiB. */
struct gf_tls *gf_tls_begin(uint16_t suite, const uint8_t *out_secret, const uint8_t *in_secret,
                            const void *early, size_t early_size, char *why, size_t why_size);
void gf_tls_end(struct gf_tls *tls);

/* All that another process needs to go on where this one stops, into `state` of GF_TLS_STATE_MAX bytes; how
 * many they are. Who was saved must not be used any more where somebody goes on. */
size_t gf_tls_save(const struct gf_tls *tls, void *state);
struct gf_tls *gf_tls_restore(const void *state, size_t size, char *why, size_t why_size);

/* As recv: how many bytes, 0 at the end, -1 with errno. EBADMSG: a record that is not authentic, or none;
 * nothing more is received then. */
ssize_t gf_tls_receive(struct gf_tls *tls, int fd, void *data, size_t size, int flags);
/* Whether something can be received without the socket. */
bool gf_tls_has_input(const struct gf_tls *tls);

/* As sendmsg: how many bytes were taken. They may lie here encrypted, until gf_tls_flush says 1; no more are
 * taken before (EAGAIN). */
ssize_t gf_tls_send(struct gf_tls *tls, int fd, const struct iovec *parts, int count, int flags);
/* 1: everything is with the socket. 0: it takes no more at the moment. -1 with errno. */
int gf_tls_flush(struct gf_tls *tls, int fd, int flags);
bool gf_tls_has_output(const struct gf_tls *tls);

/* After so many records a direction goes on with the next key (RFC 8446, 5.5). For tests: 2^23 otherwise. */
void gf_tls_update_after(struct gf_tls *tls, uint64_t records);

#ifdef __cplusplus
}
#endif
