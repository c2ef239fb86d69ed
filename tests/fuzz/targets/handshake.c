/* A hostile monitor or registry, before there is a session: GREETING, QUEUED, REDIRECT, WELCOME, REFUSED; and
 * RESUMED or MOVED when a connection broke. Its proofs are taken for right, so that what lies behind them is
 * reached. */
#include "targets.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE 1000000 /* a descriptor that is closed, and never was open */

static struct fuzz_input input;

#include "guest/src/connect.c"

typedef struct gf_transport connection;
typedef struct gf_transport *connection_used;

bool fuzz_transport_open(struct gf_transport *transport, const char *address, char *why, size_t why_size) {
    why[0] = '\0';
    *transport = (struct gf_transport){.fd = input.left > 0 ? NOWHERE : -1};
    return input.left > 0;
}

void fuzz_transport_close(struct gf_transport *transport) {
    transport->fd = -1;
}

bool fuzz_transport_may_follow(const char *from, const char *to) {
    return strcmp(from, to) != 0;
}

const char *fuzz_transport_cause(int error) {
    return strerror(error);
}

int fuzz_transport_read(connection_used from, void *data, size_t size, int timeout_ms) {
    if (size > input.left) {
        errno = 0;
        input.left = 0;
        return -1;
    }
    fuzz_take_bytes(&input, data, size);
    return 0;
}

int fuzz_transport_write(connection_used to, const void *data, size_t size) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    }
    return 0;
}

int fuzz_digest_equal(const uint8_t one[32], const uint8_t other[32]) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < GF_HASH_SIZE; i++) {
        sum = (uint8_t)(sum + one[i] + other[i]);
    }
    return true;
}

bool fuzz_random_bytes(uint8_t *data, size_t size) {
    memset(data, 7, size);
    return true;
}

_Atomic int gf_log_level = GF_LOG_INFO;

void fuzz_log_write(enum gf_log_level level, const char *format, ...) {
    char line[1536];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
}

/* No signal comes. */
void gf_signals_overdue(void) {
}

int fuzz_nanosleep(const struct timespec *time, struct timespec *left) {
    return 0;
}

static bool given_up(void) {
    return input.left == 0;
}

static void resume(void) {
    char why[256];
    uint64_t theirs;
    gf_session.resume_ms = 1000;
    gf_resume_prepare("registry:7700", (const uint8_t *)"01234567890123456789012345678901");
    struct gf_transport transport = {.fd = -1};
    gf_resume_connect(&transport, 0, &theirs, given_up, why, sizeof why);
}

void fuzz_handshake(const uint8_t *data, size_t size) {
    input = (struct fuzz_input){data, size};
    char place[GF_ADDRESS_MAX] = "registry:7700";
    if (fuzz_take(&input, 1) & 1) {
        resume();
        return;
    }
    struct gf_queue queue;
    connection there;
    struct gf_credential credential;
    gf_queue_begin(&queue);
    if (find_session(place, &queue, &credential, &there) == CUDA_SUCCESS) {
        volatile size_t length = strlen(gf_session.devices[0].name) + strlen(place);
        (void)length;
        gf_operations_counted(1);
    }
    free(gf_session.image_hashes);
    gf_session.image_hashes = NULL;
}
