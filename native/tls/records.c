#include "records.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "openssl.h"

#define HEADER         5
#define TAG            16
#define IV             12
#define KEY_MAX        32
#define PLAIN_MAX      (1u << 14)
#define SEALED_MAX     (PLAIN_MAX + 256) /* what a record may carry */
#define OVERHEAD       (HEADER + 1 + TAG)
#define BATCH          6 /* records that are given to the socket at once */
#define INPUT_SIZE     (64u << 10)
#define OUTPUT_SIZE    (BATCH * (PLAIN_MAX + OVERHEAD) + HEADER + SEALED_MAX)
#define UPDATE_AFTER   (UINT64_C(1) << 23)
#define DATALESS_MOST  32 /* records in succession without data: who sends them must not keep us reading */
#define STATE_VERSION  1
#define GCM_GET_TAG    0x10
#define GCM_SET_TAG    0x11
#define UPDATE_WANTED  1 /* bit of a state's flags */
#define KEY_UPDATE     24
#define SESSION_TICKET 4

enum content { ALERT = 21, HANDSHAKE = 22, DATA = 23 };
enum { CLOSE_NOTIFY = 0 };

struct half {
    void *cipher;
    uint64_t sequence;
    uint8_t secret[GF_TLS_SECRET_MAX], iv[IV];
};

struct gf_tls {
    const struct gf_crypto *crypto;
    uint16_t suite;
    struct half in, out;
    int end;           /* of what is received: 1 at the peer's word that it is over, -1 after a bad record */
    unsigned dataless; /* records that have come since the last one with data */
    _Atomic bool update_wanted; /* by the peer, of the key that we send with */
    uint64_t update_after;
    uint8_t *input; /* plain text that nobody took yet, then records */
    size_t plain, plain_end, sealed, sealed_end;
    uint8_t *output;
    size_t unsent, output_end;
};

struct state {
    uint16_t version, suite;
    uint32_t flags, plain, sealed, unsent;
    uint64_t in_sequence, out_sequence;
    uint8_t in_secret[GF_TLS_SECRET_MAX], out_secret[GF_TLS_SECRET_MAX];
} __attribute__((packed));

_Static_assert(sizeof(struct state) + INPUT_SIZE + OUTPUT_SIZE <= GF_TLS_STATE_MAX, "a state has room");

static const void *hash_of(const struct gf_tls *tls) {
    return tls->suite == GF_TLS_AES_256_GCM_SHA384 ? tls->crypto->EVP_sha384() : tls->crypto->EVP_sha256();
}

static size_t secret_size(const struct gf_tls *tls) {
    return tls->suite == GF_TLS_AES_256_GCM_SHA384 ? 48 : 32;
}

/* HKDF-Expand-Label without a context, of no more bytes than the hash has. */
static bool expand(const struct gf_tls *tls, const uint8_t *secret, const char *label, uint8_t *out,
                   size_t size) {
    uint8_t info[64], digest[GF_TLS_SECRET_MAX];
    size_t length = strlen(label), at = 0;
    info[at++] = 0;
    info[at++] = (uint8_t)size;
    info[at++] = (uint8_t)(6 + length);
    memcpy(info + at, "tls13 ", 6);
    memcpy(info + at + 6, label, length);
    at += 6 + length;
    info[at++] = 0;
    info[at++] = 1; /* the first block */
    bool fine =
        tls->crypto->HMAC(hash_of(tls), secret, (int)secret_size(tls), info, at, digest, NULL) != NULL;
    memcpy(out, digest, size);
    tls->crypto->OPENSSL_cleanse(digest, sizeof digest);
    return fine;
}

static bool set_key(struct gf_tls *tls, struct half *half) {
    const struct gf_crypto *crypto = tls->crypto;
    bool large = tls->suite == GF_TLS_AES_256_GCM_SHA384;
    uint8_t key[KEY_MAX];
    bool fine =
        half->cipher != NULL && expand(tls, half->secret, "key", key, large ? 32 : 16) &&
        expand(tls, half->secret, "iv", half->iv, IV) &&
        crypto->EVP_CipherInit_ex(half->cipher, large ? crypto->EVP_aes_256_gcm() : crypto->EVP_aes_128_gcm(),
                                  NULL, key, NULL, half == &tls->out) == 1;
    crypto->OPENSSL_cleanse(key, sizeof key);
    return fine;
}

static bool next_key(struct gf_tls *tls, struct half *half) {
    uint8_t secret[GF_TLS_SECRET_MAX];
    bool fine = expand(tls, half->secret, "traffic upd", secret, secret_size(tls));
    memcpy(half->secret, secret, secret_size(tls));
    tls->crypto->OPENSSL_cleanse(secret, sizeof secret);
    half->sequence = 0;
    return fine && set_key(tls, half);
}

/* The nonce of the next record, and its header as what is authenticated besides. */
static bool begin_record(struct gf_tls *tls, struct half *half, const uint8_t *header) {
    uint8_t nonce[IV];
    int size;
    memcpy(nonce, half->iv, IV);
    for (int i = 0; i < 8; i++) {
        nonce[IV - 1 - i] ^= (uint8_t)(half->sequence >> (8 * i));
    }
    half->sequence++;
    return tls->crypto->EVP_CipherInit_ex(half->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           tls->crypto->EVP_CipherUpdate(half->cipher, NULL, &size, header, HEADER) == 1;
}

static struct gf_tls *make(uint16_t suite, char *why, size_t why_size) {
    const struct gf_crypto *crypto = gf_crypto_load(why, why_size);
    if (crypto == NULL) {
        return NULL;
    }
    struct gf_tls *tls = NULL;
    if (suite == GF_TLS_AES_128_GCM_SHA256 || suite == GF_TLS_AES_256_GCM_SHA384) {
        tls = calloc(1, sizeof *tls);
    }
    if (tls == NULL) {
        snprintf(why, why_size, "TLS with the cipher suite %#x", suite);
        return NULL;
    }
    tls->crypto = crypto;
    tls->suite = suite;
    tls->update_after = UPDATE_AFTER;
    tls->input = malloc(INPUT_SIZE);
    tls->output = malloc(OUTPUT_SIZE);
    tls->in.cipher = crypto->EVP_CIPHER_CTX_new();
    tls->out.cipher = crypto->EVP_CIPHER_CTX_new();
    return tls;
}

static struct gf_tls *ready(struct gf_tls *tls, char *why, size_t why_size) {
    if (tls->input == NULL || tls->output == NULL || !set_key(tls, &tls->in) || !set_key(tls, &tls->out)) {
        snprintf(why, why_size, "libcrypto does not make the keys of a connection, or memory is at an end");
        gf_tls_end(tls);
        return NULL;
    }
    return tls;
}

struct gf_tls *gf_tls_begin(uint16_t suite, const uint8_t *out_secret, const uint8_t *in_secret,
                            const void *early, size_t early_size, char *why, size_t why_size) {
    struct gf_tls *tls = make(suite, why, why_size);
    if (tls == NULL || early_size > INPUT_SIZE || tls->input == NULL) {
        gf_tls_end(tls);
        return NULL;
    }
    memcpy(tls->in.secret, in_secret, secret_size(tls));
    memcpy(tls->out.secret, out_secret, secret_size(tls));
    if (early_size > 0) {
        memcpy(tls->input, early, early_size);
    }
    tls->sealed_end = early_size;
    return ready(tls, why, why_size);
}

void gf_tls_end(struct gf_tls *tls) {
    if (tls == NULL) {
        return;
    }
    const struct gf_crypto *crypto = tls->crypto;
    crypto->EVP_CIPHER_CTX_free(tls->in.cipher);
    crypto->EVP_CIPHER_CTX_free(tls->out.cipher);
    free(tls->input);
    free(tls->output);
    crypto->OPENSSL_cleanse(tls, sizeof *tls);
    free(tls);
}

size_t gf_tls_save(const struct gf_tls *tls, void *state) {
    struct state head = {
        .version = STATE_VERSION,
        .suite = tls->suite,
        .flags = atomic_load(&tls->update_wanted) ? UPDATE_WANTED : 0,
        .plain = (uint32_t)(tls->plain_end - tls->plain),
        .sealed = (uint32_t)(tls->sealed_end - tls->sealed),
        .unsent = (uint32_t)(tls->output_end - tls->unsent),
        .in_sequence = tls->in.sequence,
        .out_sequence = tls->out.sequence,
    };
    memcpy(head.in_secret, tls->in.secret, sizeof head.in_secret);
    memcpy(head.out_secret, tls->out.secret, sizeof head.out_secret);
    uint8_t *at = state;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, tls->input + tls->plain, head.plain);
    memcpy(at + head.plain, tls->input + tls->sealed, head.sealed);
    memcpy(at + head.plain + head.sealed, tls->output + tls->unsent, head.unsent);
    return sizeof head + head.plain + head.sealed + head.unsent;
}

struct gf_tls *gf_tls_restore(const void *state, size_t size, char *why, size_t why_size) {
    struct state head;
    bool sound = size >= sizeof head;
    if (sound) {
        memcpy(&head, state, sizeof head);
        sound = head.version == STATE_VERSION && (uint64_t)head.plain + head.sealed <= INPUT_SIZE &&
                head.unsent <= OUTPUT_SIZE && size == sizeof head + head.plain + head.sealed + head.unsent;
    }
    if (!sound) {
        snprintf(why, why_size, "what is to be gone on with is no state of TLS that this version knows");
        return NULL;
    }
    struct gf_tls *tls = make(head.suite, why, why_size);
    if (tls == NULL || tls->input == NULL || tls->output == NULL) {
        gf_tls_end(tls);
        return NULL;
    }
    memcpy(tls->in.secret, head.in_secret, sizeof head.in_secret);
    memcpy(tls->out.secret, head.out_secret, sizeof head.out_secret);
    tls->in.sequence = head.in_sequence;
    tls->out.sequence = head.out_sequence;
    atomic_store(&tls->update_wanted, (head.flags & UPDATE_WANTED) != 0);
    const uint8_t *at = (const uint8_t *)state + sizeof head;
    memcpy(tls->input, at, head.plain + head.sealed);
    tls->plain_end = tls->sealed = head.plain;
    tls->sealed_end = head.plain + head.sealed;
    memcpy(tls->output, at + head.plain + head.sealed, head.unsent);
    tls->output_end = head.unsent;
    tls->crypto->OPENSSL_cleanse(&head, sizeof head);
    return ready(tls, why, why_size);
}

/* -- receiving */

static int bad(struct gf_tls *tls) {
    tls->end = -1;
    return -1;
}

/* Of the next record, 0: it is not all there. */
static size_t complete_record(const struct gf_tls *tls) {
    size_t have = tls->sealed_end - tls->sealed;
    const uint8_t *header = tls->input + tls->sealed;
    size_t size = have < HEADER ? 0 : HEADER + ((size_t)header[3] << 8 | header[4]);
    return have >= HEADER && have >= size ? size : 0;
}

static bool may_be_record(const struct gf_tls *tls) {
    const uint8_t *header = tls->input + tls->sealed;
    size_t have = tls->sealed_end - tls->sealed;
    size_t size = have < HEADER ? TAG + 1 : (size_t)header[3] << 8 | header[4];
    return (have < 1 || header[0] == DATA) && size > TAG && size <= SEALED_MAX;
}

/* The only messages after a handshake: tickets, which nobody here wants, and the peer's next key. */
static int take_handshake(struct gf_tls *tls, const uint8_t *text, size_t size) {
    if (size >= 4 && text[0] == SESSION_TICKET) {
        return 0;
    }
    if (size != 5 || text[0] != KEY_UPDATE || text[1] != 0 || text[2] != 0 || text[3] != 1 || text[4] > 1 ||
        !next_key(tls, &tls->in)) {
        return bad(tls);
    }
    if (text[4] == 1) {
        atomic_store(&tls->update_wanted, true);
    }
    return 0;
}

/* Decrypts the next record to `text`, which may be where it lies. Its content's size, or -1; `kind` is what
 * it is. */
static int open_record(struct gf_tls *tls, size_t size, uint8_t *text, uint8_t *kind) {
    uint8_t *record = tls->input + tls->sealed;
    int length = (int)(size - HEADER - TAG), done = 0, rest = 0;
    tls->sealed += size;
    if (!begin_record(tls, &tls->in, record) ||
        tls->crypto->EVP_CipherUpdate(tls->in.cipher, text, &done, record + HEADER, length) != 1 ||
        tls->crypto->EVP_CIPHER_CTX_ctrl(tls->in.cipher, GCM_SET_TAG, TAG, record + HEADER + length) != 1 ||
        tls->crypto->EVP_CipherFinal_ex(tls->in.cipher, text + done, &rest) != 1) {
        return -1;
    }
    while (length > 0 && text[length - 1] == 0) { /* padding */
        length--;
    }
    if (length == 0 || (size_t)length > PLAIN_MAX + 1) {
        return -1;
    }
    *kind = text[length - 1];
    return length - 1;
}

/* What is no data: nothing of it is for whoever receives. */
static int take_other(struct gf_tls *tls, const uint8_t *text, int size, uint8_t kind) {
    if (kind == HANDSHAKE) {
        return take_handshake(tls, text, (size_t)size);
    }
    if (kind == ALERT && size == 2 && text[1] == CLOSE_NOTIFY) {
        tls->end = 1;
        return 0;
    }
    return bad(tls);
}

/* The next record: to `data` itself if all of it has room there, else where it lies. How many bytes are in
 * `data`, or -1. What is not authentic may be written there too, but is never said to have come. */
static int take_record(struct gf_tls *tls, size_t size, uint8_t *data, size_t room) {
    uint8_t *here = tls->input + tls->sealed + HEADER, kind;
    bool direct = size - HEADER - TAG <= room;
    int length = open_record(tls, size, direct ? data : here, &kind);
    tls->dataless = length > 0 && kind == DATA ? 0 : tls->dataless + 1;
    if (length < 0 || tls->dataless > DATALESS_MOST) {
        return bad(tls);
    }
    if (kind != DATA) {
        return take_other(tls, direct ? data : here, length, kind);
    }
    if (direct) {
        return length;
    }
    tls->plain = (size_t)(here - tls->input);
    tls->plain_end = tls->plain + (size_t)length;
    return 0;
}

/* What has come already, as far as there is room for it. */
static size_t take_input(struct gf_tls *tls, uint8_t *data, size_t size) {
    size_t done = 0;
    for (;;) {
        size_t part = tls->plain_end - tls->plain;
        part = part < size - done ? part : size - done;
        memcpy(data + done, tls->input + tls->plain, part);
        tls->plain += part;
        done += part;
        if (done == size || tls->end != 0 || !may_be_record(tls)) {
            return done;
        }
        size_t record = complete_record(tls);
        int taken = record == 0 ? -1 : take_record(tls, record, data + done, size - done);
        if (taken < 0) {
            return done;
        }
        done += (size_t)taken;
    }
}

ssize_t gf_tls_receive(struct gf_tls *tls, int fd, void *data, size_t size, int flags) {
    for (;;) {
        size_t done = take_input(tls, data, size);
        if (done > 0 || size == 0) {
            return (ssize_t)done;
        }
        if (tls->end > 0) {
            return 0;
        }
        if (tls->end < 0 || !may_be_record(tls)) {
            bad(tls);
            errno = EBADMSG;
            return -1;
        }
        memmove(tls->input, tls->input + tls->sealed, tls->sealed_end - tls->sealed);
        tls->sealed_end -= tls->sealed;
        tls->sealed = tls->plain = tls->plain_end = 0;
        ssize_t got = recv(fd, tls->input + tls->sealed_end, INPUT_SIZE - tls->sealed_end, flags);
        if (got <= 0) {
            return got;
        }
        tls->sealed_end += (size_t)got;
    }
}

bool gf_tls_has_input(const struct gf_tls *tls) {
    return tls->plain < tls->plain_end || tls->end != 0 || complete_record(tls) > 0;
}

/* -- sending */

static bool seal_end(struct gf_tls *tls, uint8_t *record, size_t size, enum content kind) {
    uint8_t *text = record + HEADER;
    const uint8_t last = (uint8_t)kind;
    int done = 0, rest = 0;
    bool fine = tls->crypto->EVP_CipherUpdate(tls->out.cipher, text + size, &done, &last, 1) == 1 &&
                tls->crypto->EVP_CipherFinal_ex(tls->out.cipher, text + size + 1, &rest) == 1 &&
                tls->crypto->EVP_CIPHER_CTX_ctrl(tls->out.cipher, GCM_GET_TAG, TAG, text + size + 1) == 1;
    tls->output_end += size + OVERHEAD;
    return fine;
}

static uint8_t *seal_begin(struct gf_tls *tls, size_t size) {
    uint8_t *record = tls->output + tls->output_end;
    size_t sealed = size + 1 + TAG;
    const uint8_t header[HEADER] = {DATA, 3, 3, (uint8_t)(sealed >> 8), (uint8_t)sealed};
    memcpy(record, header, HEADER);
    return begin_record(tls, &tls->out, record) ? record : NULL;
}

static bool seal_update(struct gf_tls *tls) {
    static const uint8_t message[] = {KEY_UPDATE, 0, 0, 1, 0};
    uint8_t *record = seal_begin(tls, sizeof message);
    int done;
    return record != NULL &&
           tls->crypto->EVP_CipherUpdate(tls->out.cipher, record + HEADER, &done, message, sizeof message) ==
               1 &&
           seal_end(tls, record, sizeof message, HANDSHAKE) && next_key(tls, &tls->out);
}

struct source {
    const struct iovec *parts;
    int count;
    size_t skip, left;
};

/* One record of what comes next. */
static bool seal_data(struct gf_tls *tls, struct source *from) {
    size_t size = from->left < PLAIN_MAX ? from->left : PLAIN_MAX, at = 0;
    uint8_t *record = seal_begin(tls, size);
    while (record != NULL && at < size) {
        size_t part = from->parts->iov_len - from->skip;
        part = part < size - at ? part : size - at;
        int done;
        if (part > 0 && tls->crypto->EVP_CipherUpdate(tls->out.cipher, record + HEADER + at, &done,
                                                      (const uint8_t *)from->parts->iov_base + from->skip,
                                                      (int)part) != 1) {
            return false;
        }
        at += part;
        from->skip += part;
        if (from->skip == from->parts->iov_len) {
            from->parts++;
            from->skip = 0;
        }
    }
    from->left -= size;
    return record != NULL && seal_end(tls, record, size, DATA);
}

int gf_tls_flush(struct gf_tls *tls, int fd, int flags) {
    while (tls->unsent < tls->output_end) {
        ssize_t sent = send(fd, tls->output + tls->unsent, tls->output_end - tls->unsent, flags);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        }
        tls->unsent += (size_t)sent;
    }
    tls->unsent = tls->output_end = 0;
    return 1;
}

bool gf_tls_has_output(const struct gf_tls *tls) {
    return tls->unsent < tls->output_end;
}

ssize_t gf_tls_send(struct gf_tls *tls, int fd, const struct iovec *parts, int count, int flags) {
    struct source from = {.parts = parts, .count = count};
    for (int i = 0; i < count; i++) {
        from.left += parts[i].iov_len;
    }
    size_t all = from.left;
    int flushed = gf_tls_flush(tls, fd, flags);
    if (flushed <= 0) {
        errno = flushed == 0 ? EAGAIN : errno;
        return -1;
    }
    while (from.left > 0 && flushed == 1) {
        for (int i = 0; i < BATCH && from.left > 0; i++) {
            bool update =
                tls->out.sequence >= tls->update_after || atomic_exchange(&tls->update_wanted, false);
            if ((update && !seal_update(tls)) || !seal_data(tls, &from)) {
                errno = EIO;
                return -1;
            }
        }
        flushed = gf_tls_flush(tls, fd, flags); /* a failure is told next time: some of it may have arrived */
    }
    return (ssize_t)(all - from.left);
}

void gf_tls_update_after(struct gf_tls *tls, uint64_t records) {
    tls->update_after = records;
}
