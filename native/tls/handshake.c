#include "handshake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "openssl.h"

#define HEADER          5
#define RECORD_MAX      (HEADER + (1u << 14) + 256)
#define SECRET_SIZE     32 /* of the one suite that is asked for */
#define SUITE           "TLS_AES_128_GCM_SHA256"
#define TLS_1_3         0x0304
#define SET_MIN_VERSION 123 /* SSL_CTX_ctrl */
#define SET_HOST_NAME   55  /* SSL_ctrl */
#define VERIFY_PEER     1
#define WANT_READ       2 /* SSL_get_error */

/* X509_V_ERR_… */
enum {
    NOT_YET_VALID = 9,
    EXPIRED = 10,
    SELF_SIGNED = 18,
    SELF_SIGNED_IN_CHAIN = 19,
    NO_ISSUER = 20,
    NO_ISSUER_OF_LEAF = 21,
    OTHER_HOST = 62,
    OTHER_ADDRESS = 64,
};

struct secrets {
    uint8_t client[SECRET_SIZE], server[SECRET_SIZE];
    bool have_client, have_server;
};

struct attempt {
    const struct gf_crypto *crypto;
    const struct gf_ssl *ssl;
    const struct gf_tls_peer *peer;
    int fd;
    int64_t until; /* of the monotonic clock, in ms */
    void *context, *session, *in, *out;
    struct secrets secrets;
    char *why;
    size_t why_size;
    bool hung_up; /* the peer, before all was said */
};

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool read_secret(const char *line, const char *label, uint8_t secret[SECRET_SIZE]) {
    size_t size = strlen(label);
    if (strncmp(line, label, size) != 0 || line[size] != ' ') {
        return false;
    }
    const char *hex = strchr(line + size + 1, ' ');
    for (size_t i = 0; hex != NULL && i < SECRET_SIZE; i++) {
        unsigned byte;
        if (sscanf(hex + 1 + 2 * i, "%2x", &byte) != 1) {
            return false;
        }
        secret[i] = (uint8_t)byte;
    }
    return hex != NULL;
}

/* libssl tells the secrets of a handshake in the format of its key log; this is how they are had of it. */
static void take_secret(const void *session, const char *line) {
    static const char client[] = "CLIENT_TRAFFIC_SECRET_0", server[] = "SERVER_TRAFFIC_SECRET_0";
    char why[64];
    struct secrets *secrets = gf_ssl_load(why, sizeof why)->SSL_get_ex_data(session, 0);
    secrets->have_client = secrets->have_client || read_secret(line, client, secrets->client);
    secrets->have_server = secrets->have_server || read_secret(line, server, secrets->server);
}

static bool wait_for(struct attempt *a, short event) {
    struct pollfd wait = {.fd = a->fd, .events = event};
    int64_t left = a->until - now_ms();
    int ready = poll(&wait, 1, left > 0 ? (int)left : 0);
    if (ready == 0) {
        snprintf(a->why, a->why_size, "it does not answer");
    } else if (ready < 0 && errno != EINTR) {
        snprintf(a->why, a->why_size, "%s", strerror(errno));
    }
    return ready > 0 || (ready < 0 && errno == EINTR);
}

/* The socket failed with this errno, or (0) the peer closed it. Returns false. */
static bool told_of(struct attempt *a, int error) {
    a->hung_up = error == 0 || error == ECONNRESET || error == EPIPE;
    snprintf(a->why, a->why_size, "%s",
             error == 0 ? "it closed the connection during the TLS handshake" : strerror(error));
    return false;
}

/* What libssl has to say goes to the socket. */
static bool say(struct attempt *a) {
    char data[1024];
    for (int size; (size = a->crypto->BIO_read(a->out, data, sizeof data)) > 0;) {
        for (int done = 0; done < size;) {
            ssize_t sent = send(a->fd, data + done, (size_t)(size - done), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) {
                return told_of(a, errno);
            }
            done += sent > 0 ? (int)sent : 0;
            if (sent < 0 && !wait_for(a, POLLOUT)) {
                return false;
            }
        }
    }
    return true;
}

static bool read_exactly(struct attempt *a, uint8_t *data, size_t size) {
    for (size_t done = 0; done < size;) {
        if (!wait_for(a, POLLIN)) {
            return false;
        }
        ssize_t got = recv(a->fd, data + done, size - done, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return told_of(a, got == 0 ? 0 : errno);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* One record to libssl, and not a byte more: what follows the handshake is not libssl's. */
static bool hear_record(struct attempt *a, uint8_t record[RECORD_MAX]) {
    if (!read_exactly(a, record, HEADER)) {
        return false;
    }
    size_t size = (size_t)record[3] << 8 | record[4];
    if (record[0] < 20 || record[0] > 23 || record[1] != 3 || size > RECORD_MAX - HEADER) {
        snprintf(
            a->why, a->why_size,
            "it speaks no TLS, or gave up waiting: start it with --tls-cert and --tls-key, or leave tls:// "
            "out of its address");
        return false;
    }
    return read_exactly(a, record + HEADER, size) &&
           a->crypto->BIO_write(a->in, record, (int)(HEADER + size)) == (int)(HEADER + size);
}

/* A record is too large for the stacks of some threads. */
static bool hear(struct attempt *a) {
    uint8_t *record = malloc(RECORD_MAX);
    if (record == NULL) {
        snprintf(a->why, a->why_size, "no memory for a TLS handshake");
        return false;
    }
    bool fine = hear_record(a, record);
    free(record);
    return fine;
}

static void say_why_not(struct attempt *a) {
    const char *authority = a->peer->authority;
    const char *believed = authority != NULL ? authority : "the system's store (GPUFERRY_TLS_CA is not set)";
    long verdict = a->ssl->SSL_get_verify_result(a->session);
    switch (verdict) {
    case 0: {
        const char *reason = a->crypto->ERR_reason_error_string(a->crypto->ERR_get_error());
        snprintf(a->why, a->why_size, "the TLS handshake failed: %s",
                 reason != NULL ? reason : "OpenSSL does not say why");
        return;
    }
    case EXPIRED:
    case NOT_YET_VALID:
        snprintf(a->why, a->why_size,
                 "its certificate %s: it needs another (`gpuferry tls issue`), or a clock is wrong",
                 verdict == EXPIRED ? "has expired" : "is not valid yet");
        return;
    case OTHER_HOST:
    case OTHER_ADDRESS:
        snprintf(
            a->why, a->why_size,
            "its certificate is not for %s: use a name that it is for, or say which with GPUFERRY_TLS_NAME",
            a->peer->name);
        return;
    case SELF_SIGNED:
    case SELF_SIGNED_IN_CHAIN:
    case NO_ISSUER:
    case NO_ISSUER_OF_LEAF:
        snprintf(a->why, a->why_size,
                 "its certificate is of no authority that is believed here (%s): set GPUFERRY_TLS_CA to the "
                 "file of "
                 "its authority",
                 believed);
        return;
    default:
        snprintf(a->why, a->why_size, "its certificate is not valid: %s",
                 a->crypto->X509_verify_cert_error_string(verdict));
    }
}

static bool prepare(struct attempt *a) {
    const struct gf_ssl *ssl = a->ssl;
    const char *authority = a->peer->authority, *name = a->peer->name;
    uint8_t address[sizeof(struct in6_addr)];
    a->context = ssl->SSL_CTX_new(ssl->TLS_client_method());
    if (a->context == NULL || ssl->SSL_CTX_ctrl(a->context, SET_MIN_VERSION, TLS_1_3, NULL) != 1 ||
        ssl->SSL_CTX_set_ciphersuites(a->context, SUITE) != 1) {
        snprintf(a->why, a->why_size, "the OpenSSL here does not speak TLS 1.3");
        return false;
    }
    ssl->SSL_CTX_set_verify(a->context, VERIFY_PEER, NULL);
    ssl->SSL_CTX_set_keylog_callback(a->context, take_secret);
    if (authority != NULL ? ssl->SSL_CTX_load_verify_locations(a->context, authority, NULL) != 1
                          : ssl->SSL_CTX_set_default_verify_paths(a->context) != 1) {
        snprintf(a->why, a->why_size, "no certificate of an authority can be read from GPUFERRY_TLS_CA=%s",
                 authority != NULL ? authority : "");
        return false;
    }
    a->session = ssl->SSL_new(a->context);
    a->in = a->crypto->BIO_new(a->crypto->BIO_s_mem());
    a->out = a->crypto->BIO_new(a->crypto->BIO_s_mem());
    if (a->session == NULL || a->in == NULL || a->out == NULL) {
        snprintf(a->why, a->why_size, "no memory for a TLS handshake");
        return false;
    }
    ssl->SSL_set_bio(a->session, a->in, a->out); /* which end with it */
    bool by_address = inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
    bool named = by_address
                     ? a->crypto->X509_VERIFY_PARAM_set1_ip_asc(ssl->SSL_get0_param(a->session), name) == 1
                     : ssl->SSL_set1_host(a->session, name) == 1 &&
                           ssl->SSL_ctrl(a->session, SET_HOST_NAME, 0, (void *)name) == 1;
    if (!named || ssl->SSL_set_ex_data(a->session, 0, &a->secrets) != 1) {
        snprintf(a->why, a->why_size, "%s is no name that a certificate can be for", name);
        return false;
    }
    return true;
}

static bool shake_hands(struct attempt *a) {
    a->crypto->ERR_clear_error();
    for (;;) {
        int result = a->ssl->SSL_connect(a->session);
        bool goes_on = result == 1 || a->ssl->SSL_get_error(a->session, result) == WANT_READ;
        if (!goes_on) {
            say_why_not(a);
            char unheard[64];
            struct attempt last = *a;
            last.why = unheard;
            last.why_size = sizeof unheard;
            say(&last); /* the alert, if the peer still listens */
            return false;
        }
        if (!say(a)) {
            return false;
        }
        if (result == 1) {
            return true;
        }
        if (!hear(a)) {
            return false;
        }
    }
}

struct gf_tls *gf_tls_connect(int fd, const struct gf_tls_peer *peer, int timeout_ms, char *why,
                              size_t why_size) {
    struct attempt a = {
        .peer = peer, .fd = fd, .until = now_ms() + timeout_ms, .why = why, .why_size = why_size};
    char cause[256];
    a.ssl = gf_ssl_load(cause, sizeof cause);
    if (a.ssl == NULL) {
        snprintf(why, why_size,
                 "TLS needs OpenSSL's libssl on this machine, and there is none (%s): install libssl3",
                 cause);
        errno = EPROTO;
        return NULL;
    }
    a.crypto = gf_crypto_load(cause, sizeof cause);
    struct gf_tls *tls = NULL;
    if (prepare(&a) && shake_hands(&a)) {
        if (a.secrets.have_client && a.secrets.have_server) {
            tls = gf_tls_begin(GF_TLS_AES_128_GCM_SHA256, a.secrets.client, a.secrets.server, NULL, 0, why,
                               why_size);
        } else {
            snprintf(why, why_size, "the OpenSSL here does not say which keys it agreed on");
        }
    }
    a.crypto->OPENSSL_cleanse(&a.secrets, sizeof a.secrets);
    if (a.session != NULL) {
        a.ssl->SSL_free(a.session);
    }
    if (a.context != NULL) {
        a.ssl->SSL_CTX_free(a.context);
    }
    errno = a.hung_up ? 0 : EPROTO;
    return tls;
}
