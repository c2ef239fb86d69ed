/* From GPUFERRY_MONITOR to a session: connects, shakes hands, follows redirects and queues, and opens what a
 * session needs. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "channel.h"
#include "context.h"
#include "credential.h"
#include "devices.h"
#include "driver_interop/asked.h"
#include "gpuferry/messages.h"
#include "handshake.h"
#include "hello.h"
#include "log.h"
#include "operations.h"
#include "pool.h"
#include "process.h"
#include "program.h"
#include "queue.h"
#include "redirect.h"
#include "resume.h"
#include "session.h"
#include "stats.h"
#include "transport.h"
#include "window.h"
#include "wire/sha256.h"
#include "wire/uncancelled.h"

#define REDIRECTS_MOST 3
/* No CUresult: the same again, and telling which operations are spoken. */
#define GF_TRY_INSISTING ((CUresult) - 1)

static pthread_mutex_t connect_lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried;
static _Atomic pid_t connecting; /* the process of which a thread does */
static CUresult outcome;

/* The answer to HELLO. Until it comes, the server may say what place in the queue is ours. */
static char *read_answer(struct gf_transport *from, struct gf_header *header, struct gf_queue *queue) {
    for (;;) {
        char *body = gf_read_frame(from, header, GF_HANDSHAKE_TIMEOUT_MS);
        if (body == NULL || header->op != GF_OP_QUEUED ||
            header->size < sizeof *header + sizeof(struct gf_queued)) {
            return body;
        }
        const struct gf_queued *queued = (const struct gf_queued *)body;
        gf_queue_joined(queue, queued->position, queued->length);
        free(body);
    }
}

/* Nobody's sums of addresses go round, and each device has an area. */
static bool is_sound(const struct gf_welcome *welcome) {
    const uint64_t highest = UINT64_C(1) << 56, granularity = welcome->granularity;
    return granularity >= GF_STATE_PAGE && (granularity & (granularity - 1)) == 0 &&
           welcome->window_base % granularity == 0 && welcome->window_base <= highest &&
           welcome->window_size <= highest && welcome->window_size / GF_DEVICES_MAX >= 2 * granularity;
}

static bool take_welcome(const struct gf_header *header, const char *body) {
    const struct gf_welcome *welcome = (const struct gf_welcome *)body;
    size_t size = header->size - sizeof *header;
    if (size < sizeof *welcome) {
        return false;
    }
    size_t devices = welcome->device_count, hashes = welcome->image_hash_count;
    if (devices < 1 || devices > GF_DEVICES_MAX) {
        return false;
    }
    size_t links = devices > 1 ? devices * devices : 0;
    size_t told = sizeof *welcome + devices * sizeof(struct gf_device) +
                  links * sizeof(struct gf_device_link) + hashes * GF_HASH_SIZE;
    size_t agreed = size < told ? 0 : gf_operations_size(body + told, size - told);
    if (size < told || !gf_operations_agree(body + told, agreed) ||
        !gf_program_take(body + told + agreed, size - told - agreed)) {
        return false;
    }
    if (!gf_devices_take(
            (const struct gf_device *)(welcome + 1),
            (const struct gf_device_link *)(body + sizeof *welcome + devices * sizeof(struct gf_device)),
            (int)devices) ||
        !is_sound(welcome)) {
        return false;
    }
    gf_session.id = welcome->session;
    gf_session.window_base = welcome->window_base;
    gf_session.window_size = welcome->window_size;
    gf_session.quota = welcome->quota;
    gf_session.granularity = welcome->granularity;
    gf_session.driver_version = welcome->driver_version;
    gf_session.image_kinds = welcome->image_kinds;
    gf_session.resume_ms = welcome->resume_ms;
    gf_session.image_hashes = malloc(hashes * GF_HASH_SIZE + 1);
    if (gf_session.image_hashes == NULL) {
        return false;
    }
    memcpy(gf_session.image_hashes, body + told - hashes * GF_HASH_SIZE, hashes * GF_HASH_SIZE);
    gf_session.image_hash_count = (uint32_t)hashes;
    return true;
}

static CUresult refused(const struct gf_header *header, const char *body, const char *address,
                        const struct gf_credential *credential) {
    const struct gf_refused *refusal = (const struct gf_refused *)body;
    if (header->size < sizeof *header + sizeof *refusal) {
        gf_error("the GPU server at %s refused this program without saying why", address);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    gf_error("the GPU server at %s refused this program: %s", address, (const char *)(refusal + 1));
    if (refusal->reason == GF_REFUSED_DENIED && credential->token[0] == '\0') {
        gf_error("no token is set: set GPUFERRY_TOKEN or GPUFERRY_TOKEN_FILE; `gpuferry run` finds the token "
                 "of a monitor on this machine");
    }
    return refusal->cuda_error != 0 ? (CUresult)refusal->cuda_error : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* Whether that is why there was no frame. */
static bool hung_up(void) {
    return errno == 0 || errno == ECONNRESET || errno == EPIPE;
}

/* A server of another build may tell the same 16 bits of its spec hash. */
static bool differs_after_all(const struct gf_header *header, const char *body) {
    const struct gf_refused *refusal = (const struct gf_refused *)body;
    return header->size >= sizeof *header + sizeof *refusal && refusal->reason == GF_REFUSED_SPEC &&
           !gf_operations_offered();
}

/* What this side says, too large for the stacks of some threads. */
struct said {
    struct gf_extensions extensions;
    struct {
        struct gf_header header;
        struct gf_hello hello;
        uint8_t extensions[sizeof(((struct gf_extensions *)NULL)->data)];
    } __attribute__((packed)) frame;
};

static CUresult shake_hands_saying(struct said *said, struct gf_transport *transport, const char *address,
                                   struct gf_credential *credential, struct gf_queue *queue, bool insist,
                                   char next[GF_ADDRESS_MAX]) {
    struct gf_header header;
    struct gf_hello hello;
    struct gf_extensions *extensions = &said->extensions;
    uint8_t proof[GF_HASH_SIZE], key[GF_HASH_SIZE];
    CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    char *greeting_body = gf_read_frame(transport, &header, GF_HANDSHAKE_TIMEOUT_MS);
    if (greeting_body != NULL && header.op == GF_OP_REFUSED) {
        result = refused(&header, greeting_body, address, credential);
        free(greeting_body);
        return result;
    }
    struct gf_greeting greeting;
    if (greeting_body == NULL && hung_up() && gf_queue_broke(queue)) {
        return result;
    }
    if (greeting_body == NULL || header.op != GF_OP_GREETING ||
        header.size != sizeof header + sizeof greeting ||
        memcmp(greeting_body, GF_MAGIC, sizeof greeting.magic) != 0) {
        gf_error("no gpuferry monitor answers at %s (%s): check GPUFERRY_MONITOR", address,
                 greeting_body != NULL ? "it does not speak gpuferry's protocol" : gf_handshake_cause());
        free(greeting_body);
        return result;
    }
    memcpy(&greeting, greeting_body, sizeof greeting);
    free(greeting_body);
    if (greeting.version != GF_PROTOCOL_VERSION) {
        gf_info("the server speaks protocol version %u, this guest %u", greeting.version,
                GF_PROTOCOL_VERSION);
    }
    if (!gf_hello_fill(&hello, credential)) {
        gf_error("no random numbers: %s", strerror(errno));
        return result;
    }
    extensions->size = 0;
    if (hello.devices == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!gf_operations_offer(&greeting, insist, hello.spec_hash, extensions) ||
        !gf_hello_extend(extensions, credential, queue)) {
        gf_error("not connecting: check GPUFERRY_LABELS, GPUFERRY_MAX_WAIT, GPUFERRY_WALL_LIMIT, "
                 "GPUFERRY_IDLE_LIMIT, GPUFERRY_GPU_REQUEST, GPUFERRY_GPU_LIMIT");
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_credential_prove(credential, &greeting, &hello, extensions, hello.proof);
    gf_credential_mac(credential, GF_PROOF_SERVER, &greeting, &hello, NULL, 0, proof);

    said->frame.header = (struct gf_header){.op = GF_OP_HELLO};
    said->frame.hello = hello;
    memcpy(said->frame.extensions, extensions->data, extensions->size);
    uint32_t size = (uint32_t)(offsetof(typeof(said->frame), extensions) + extensions->size);
    said->frame.header.size = size;
    bool sent = gf_transport_write(transport, &said->frame, size) == 0;
    char *body =
        read_answer(transport, &header, queue); /* even if not all was sent: it may hold the refusal */
    if (body == NULL && hung_up() && gf_queue_dropped(queue)) {
        return result;
    }
    if (body == NULL || !(sent || header.op == GF_OP_REFUSED)) {
        gf_error("the GPU server at %s did not grant a session: %s", address, gf_handshake_cause());
    } else if (header.op == GF_OP_REFUSED && !insist && differs_after_all(&header, body)) {
        free(body);
        return GF_TRY_INSISTING;
    } else if (header.op == GF_OP_REFUSED) {
        result = refused(&header, body, address, credential);
    } else if (header.op == GF_OP_REDIRECT) {
        if (gf_redirect_take(credential, &greeting, &hello, &header, body, next)) {
            result = CUDA_SUCCESS;
        } else {
            gf_error("%s redirects this program, but does not know its token: it may be an impostor",
                     address);
        }
    } else if (header.op != GF_OP_WELCOME || header.size < sizeof header + sizeof(struct gf_welcome)) {
        gf_error("the GPU server at %s answered with something else than a welcome", address);
    } else if (!gf_digest_equal(proof, (const uint8_t *)body)) {
        gf_error(
            "the GPU server at %s does not know this program's token: it may be an impostor. Not connecting.",
            address);
    } else if (!take_welcome(&header, body)) {
        gf_error("the welcome of the GPU server at %s is malformed", address);
    } else {
        gf_credential_mac(credential, GF_KEY_RESUME, &greeting, &hello, NULL, 0, key);
        gf_resume_prepare(address, key);
        if ((hello.flags & GF_HELLO_RESUMABLE) != 0 && gf_session.resume_ms == 0) {
            gf_info("%s keeps no session whose connection breaks (--resume-grace 0): a break is the end",
                    address);
        }
        result = CUDA_SUCCESS;
    }
    free(body);
    return result;
}

/* CUDA_SUCCESS with a session, or with `next` set to where the session is to be had with the new credential.
 */
static CUresult shake_hands(struct gf_transport *transport, const char *address,
                            struct gf_credential *credential, struct gf_queue *queue, bool insist,
                            char next[GF_ADDRESS_MAX]) {
    struct said *said = malloc(sizeof *said);
    next[0] = '\0';
    if (said == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = shake_hands_saying(said, transport, address, credential, queue, insist, next);
    free(said);
    return result;
}

/* From GPUFERRY_MONITOR to where the session is; `place` becomes its address. */
static CUresult find_session(char place[GF_ADDRESS_MAX], struct gf_queue *queue,
                             struct gf_credential *credential, struct gf_transport *transport) {
    CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!gf_credential_read(credential)) {
        return result;
    }
    bool insist = false;
    for (int redirects = 0; redirects <= REDIRECTS_MOST; redirects++) {
        char why[256] = "no address", next[GF_ADDRESS_MAX];
        bool open = gf_transport_open(transport, place, why, sizeof why);
        bool dropped = !open && transport->reached && hung_up() && gf_queue_dropped(queue);
        if (dropped || (!open && gf_queue_broke(queue))) {
            return result;
        }
        if (!open) {
            gf_error(redirects > 0 ? "cannot connect to %s, where the registry sent this program: %s"
                     : transport->reached
                         ? "not connecting to GPUFERRY_MONITOR=%s: %s"
                         : "cannot connect to GPUFERRY_MONITOR=%s: %s. Is `gpuferry monitor` running "
                           "there?",
                     place, why);
            return transport->reached ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_SYSTEM_NOT_READY;
        }
        result = shake_hands(transport, place, credential, queue, insist, next);
        insist = result == GF_TRY_INSISTING;
        if (insist) {
            gf_transport_close(transport);
            continue;
        }
        if (next[0] == '\0') {
            return result;
        }
        gf_info("%s sends this program to %s", place, next);
        gf_transport_close(transport);
        if (!gf_transport_may_follow(place, next)) {
            gf_error("the registry at %s sends this program to %s, where it would go on in clear. Not "
                     "connecting: start "
                     "that GPU server with --tls-cert and --tls-key.",
                     place, next);
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
        }
        memcpy(place, next, sizeof next);
    }
    gf_error("redirected more than %d times, last to %s", REDIRECTS_MOST, place);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* The same, as often as a monitor goes away while this program is in its queue. */
static CUresult queue_for_session(const char *address, char place[GF_ADDRESS_MAX],
                                  struct gf_transport *transport) {
    struct gf_queue queue;
    struct gf_credential *credential = malloc(sizeof *credential); /* too large for some stacks, too */
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    transport->fd = -1;
    gf_queue_begin(&queue);
    while (credential != NULL) {
        snprintf(place, GF_ADDRESS_MAX, "%s", address);
        result = find_session(place, &queue, credential, transport);
        if (!queue.broken) {
            break;
        }
        gf_transport_close(transport);
        if (!gf_queue_again(&queue)) {
            gf_error("the monitor at %s went away while this program waited for a GPU, and did not come back "
                     "in time",
                     place);
            result = CUDA_ERROR_DEVICE_UNAVAILABLE;
            break;
        }
    }
    free(credential);
    return result;
}

static CUresult connect_once(void) {
    const char *address = getenv("GPUFERRY_MONITOR");
    if (address == NULL || address[0] == '\0') {
        gf_error("GPUFERRY_MONITOR is not set: start the program with `gpuferry run -- …`, or set it to the "
                 "monitor's host:port, tls://host:port or unix:/path");
        return CUDA_ERROR_NO_DEVICE;
    }
    uint64_t start = gf_now();
    gf_session.launch_blocking = gf_asked_launch_blocking();
    gf_session.loading_mode = gf_asked_loading(CU_MODULE_LAZY_LOADING);
    char place[GF_ADDRESS_MAX];
    struct gf_transport transport;
    CUresult result = queue_for_session(address, place, &transport);
    if (result == CUDA_SUCCESS && (!gf_window_open() || !gf_context_open() || !gf_pool_open())) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    gf_stat_add(GF_STAT_CONNECT_NS, gf_now() - start);
    if (result == CUDA_SUCCESS && !gf_channel_open(&transport)) {
        gf_error("cannot start the I/O thread: %s", strerror(errno));
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        gf_transport_close(&transport);
        return result;
    }
    gf_devices_tell();
    gf_process_watch();
    gf_info("session %llu on %s: %s, %llu MiB, driver %u", (unsigned long long)gf_session.id, place,
            gf_session.devices[0].name, (unsigned long long)(gf_session.quota >> 20),
            gf_session.driver_version);
    return CUDA_SUCCESS;
}

CUresult gf_session_connect(void) {
    GF_UNCANCELLED;
    enum gf_state state = gf_session_state();
    if (state == GF_FORKED || state == GF_CLOSED) {
        return gf_session_error();
    }
    pid_t by = atomic_load(&connecting);
    if (by != 0 && by != getpid()) { /* a child has neither that thread nor what it would have */
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&connect_lock);
    if (!tried) {
        tried = true;
        atomic_store(&connecting, getpid());
        gf_stats_begin();
        outcome = connect_once();
        atomic_store(&connecting, 0);
    }
    pthread_mutex_unlock(&connect_lock);
    return outcome;
}
