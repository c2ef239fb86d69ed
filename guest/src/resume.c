#include "resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handshake.h"
#include "log.h"
#include "redirect.h"
#include "session.h"
#include "signals.h"
#include "stats.h"
#include "transport.h"
#include "wire/sha256.h"

#define FIRST_PAUSE_MS   10
#define FOLLOW_MS        30000
#define LONGEST_PAUSE_MS 500
#define ANSWER_MS        10000 /* a monitor that does not answer may be followed by one that does */

enum outcome { RESUMED, AGAIN, REFUSED };

static struct {
    char address[1024];
    uint8_t key[GF_HASH_SIZE];
} granted;

bool gf_resume_wanted(void) {
    const char *choice = getenv("GPUFERRY_ON_LOSS");
    if (choice == NULL || choice[0] == '\0' || strcmp(choice, "error") == 0) {
        return false;
    }
    if (strcmp(choice, "reconnect") != 0) {
        gf_error("GPUFERRY_ON_LOSS=%s is neither error nor reconnect. Taking error.", choice);
        return false;
    }
    return true;
}

void gf_resume_prepare(const char *address, const uint8_t key[GF_HASH_SIZE]) {
    snprintf(granted.address, sizeof granted.address, "%s", address);
    memcpy(granted.key, key, sizeof granted.key);
}

bool gf_resume_moved(const struct gf_moved *moved, const char *address) {
    struct gf_hmac hmac;
    uint8_t proof[GF_HASH_SIZE], mask[GF_HASH_SIZE];
    gf_hmac_init(&hmac, granted.key, sizeof granted.key);
    gf_hmac_update(&hmac, GF_PROOF_MOVED, strlen(GF_PROOF_MOVED));
    gf_hmac_update(&hmac, moved->nonce, sizeof *moved - sizeof moved->proof);
    gf_hmac_update(&hmac, address, moved->address_size);
    gf_hmac_final(&hmac, proof);
    if (!gf_digest_equal(proof, moved->proof)) {
        return false;
    }
    char place[GF_ADDRESS_MAX];
    snprintf(place, sizeof place, "%.*s", (int)moved->address_size, address);
    if (!gf_transport_may_follow(granted.address, place)) {
        gf_error("session %llu moved from %s to %s, where it would go on in clear: not following",
                 (unsigned long long)gf_session.id, granted.address, place);
        return false;
    }
    gf_hmac_init(&hmac, granted.key, sizeof granted.key);
    gf_hmac_update(&hmac, GF_KEY_MOVED, strlen(GF_KEY_MOVED));
    gf_hmac_update(&hmac, moved->nonce, sizeof moved->nonce);
    gf_hmac_final(&hmac, mask);
    for (size_t i = 0; i < sizeof mask; i++) {
        granted.key[i] = moved->key[i] ^ mask[i];
    }
    memcpy(granted.address, address, moved->address_size);
    granted.address[moved->address_size] = '\0';
    gf_info("session %llu is session %llu at %s now", (unsigned long long)gf_session.id,
            (unsigned long long)moved->session, granted.address);
    gf_session.id = moved->session;
    return true;
}

/* In place of RESUMED: the connection broke before this guest was told that its session moved. */
static bool read_moved(const struct gf_header *header, const char *body) {
    struct gf_moved moved;
    size_t size = header->size - sizeof *header;
    if (size < sizeof moved) {
        return false;
    }
    memcpy(&moved, body, sizeof moved);
    return size == sizeof moved + moved.address_size && moved.address_size < sizeof granted.address &&
           gf_resume_moved(&moved, body + sizeof moved);
}

static void prove(const char *label, const struct gf_greeting *greeting, const struct gf_resume *resume,
                  size_t size, uint8_t proof[GF_HASH_SIZE]) {
    struct gf_hmac hmac;
    gf_hmac_init(&hmac, granted.key, sizeof granted.key);
    gf_hmac_update(&hmac, label, strlen(label));
    gf_hmac_update(&hmac, greeting->nonce, sizeof greeting->nonce);
    gf_hmac_update(&hmac, resume, size);
    gf_hmac_final(&hmac, proof);
}

/* A monitor that is shutting down may have a successor in time, and what was too slow may be quicker then. */
static enum outcome read_refusal(const struct gf_header *header, const char *body, char *why, size_t size) {
    const struct gf_refused *refusal = (const struct gf_refused *)body;
    if (header->size < sizeof *header + sizeof *refusal) {
        snprintf(why, size, "it refused to go on without saying why");
        return REFUSED;
    }
    snprintf(why, size, "%s", (const char *)(refusal + 1));
    bool later =
        refusal->reason == GF_REFUSED_SHUTTING_DOWN || refusal->cuda_error == CUDA_ERROR_SYSTEM_NOT_READY;
    return later ? AGAIN : REFUSED;
}

static enum outcome shake_hands(struct gf_transport *transport, uint64_t received, int timeout_ms,
                                uint64_t *theirs, char *why, size_t why_size) {
    struct gf_header header;
    char *body = gf_read_frame(transport, &header, timeout_ms);
    if (body != NULL && header.op == GF_OP_REFUSED) {
        enum outcome outcome = read_refusal(&header, body, why, why_size);
        free(body);
        return outcome;
    }
    struct gf_greeting greeting;
    bool fine = body != NULL && header.op == GF_OP_GREETING && header.size == sizeof header + sizeof greeting;
    if (fine) {
        memcpy(&greeting, body, sizeof greeting);
    }
    free(body);
    if (!fine) {
        snprintf(why, why_size, "%s", gf_handshake_cause());
        return AGAIN;
    }
    struct {
        struct gf_header header;
        struct gf_resume resume;
    } __attribute__((packed)) out = {
        {.size = sizeof out, .op = GF_OP_RESUME},
        {.version = GF_PROTOCOL_VERSION, .session = gf_session.id, .received = received}};
    if (!gf_random_bytes(out.resume.nonce, sizeof out.resume.nonce)) {
        snprintf(why, why_size, "no random numbers: %s", strerror(errno));
        return AGAIN;
    }
    uint8_t proof[GF_HASH_SIZE];
    prove(GF_PROOF_RESUME, &greeting, &out.resume, offsetof(struct gf_resume, proof), out.resume.proof);
    prove(GF_PROOF_RESUMED, &greeting, &out.resume, sizeof out.resume, proof);
    gf_transport_write(transport, &out, sizeof out); /* if it fails there may still be a refusal to read */
    body = gf_read_frame(transport, &header, timeout_ms);
    enum outcome outcome = AGAIN;
    const struct gf_resumed *resumed = (const struct gf_resumed *)body;
    if (body == NULL) {
        snprintf(why, why_size, "%s", gf_handshake_cause());
    } else if (header.op == GF_OP_REFUSED) {
        outcome = read_refusal(&header, body, why, why_size);
    } else if (header.op == GF_OP_MOVED && read_moved(&header, body)) {
        snprintf(why, why_size, "its session moved on");
    } else if (header.op != GF_OP_RESUMED || header.size != sizeof header + sizeof *resumed) {
        snprintf(why, why_size, "it answered the request to go on with something else");
        outcome = REFUSED;
    } else if (!gf_digest_equal(proof, resumed->proof)) {
        snprintf(why, why_size, "whoever answers there does not know this session's key");
        outcome = REFUSED;
    } else {
        *theirs = resumed->received;
        outcome = RESUMED;
    }
    free(body);
    return outcome;
}

static void pause_ms(int milliseconds) {
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
}

bool gf_resume_connect(struct gf_transport *transport, uint64_t received, uint64_t *theirs,
                       bool (*given_up)(void), char *why, size_t why_size) {
    /* A session that may not be resumed may still have moved. */
    uint32_t limit_ms = gf_session.resume_ms > 0 ? gf_session.resume_ms : FOLLOW_MS;
    uint64_t start = gf_now(), allowed = (uint64_t)limit_ms * 1000000u;
    char cause[384] = "the program ends";
    enum outcome outcome = AGAIN;
    for (int pause = FIRST_PAUSE_MS; outcome == AGAIN && !given_up(); pause *= 2) {
        if (gf_transport_open(transport, granted.address, cause, sizeof cause)) {
            int patience = limit_ms < ANSWER_MS ? (int)limit_ms : ANSWER_MS;
            outcome = shake_hands(transport, received, patience, theirs, cause, sizeof cause);
            if (outcome == RESUMED) {
                gf_info("session %llu goes on after %llu ms on another connection",
                        (unsigned long long)gf_session.id,
                        (unsigned long long)((gf_now() - start) / 1000000u));
                return true;
            }
            gf_transport_close(transport);
        }
        if (gf_now() - start >= allowed) {
            break;
        }
        pause = pause < LONGEST_PAUSE_MS ? pause : LONGEST_PAUSE_MS;
        pause_ms(pause);
        gf_signals_overdue();
    }
    snprintf(why, why_size, "the connection broke and the session could not be resumed: %s", cause);
    return false;
}
