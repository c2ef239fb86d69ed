/* A look at what the program has, for NVML: HELLO with the extension LOOK on a connection of its own,
 * answered by DEVICES. It waits in no queue and takes no API server. */
#include "wire/look.h"

#include <stdlib.h>
#include <string.h>

#include "credential.h"
#include "devices.h"
#include "handshake.h"
#include "hello.h"
#include "log.h"
#include "operations.h"
#include "queue.h"
#include "redirect.h"
#include "session.h"
#include "transport.h"
#include "window.h"
#include "wire/sha256.h"

#define TIMEOUT_MS     10000
#define REDIRECTS_MOST 3

struct asked {
    struct gf_credential credential;
    struct gf_greeting greeting;
    struct gf_hello hello;
    struct gf_extensions extensions; /* too large for the stacks of some threads, as the credential */
    char place[GF_ADDRESS_MAX];
};

static bool say_hello(struct gf_transport *transport, struct asked *asked) {
    struct gf_extensions *extensions = &asked->extensions;
    struct gf_queue queue;
    struct gf_header header;
    gf_queue_begin(&queue);
    extensions->size = 0;
    char *body = gf_read_frame(transport, &header, TIMEOUT_MS);
    bool greets =
        body != NULL && header.op == GF_OP_GREETING && header.size == sizeof header + sizeof asked->greeting;
    if (greets) {
        memcpy(&asked->greeting, body, sizeof asked->greeting);
    }
    free(body);
    struct gf_hello *hello = &asked->hello;
    if (!greets || !gf_hello_fill(hello, &asked->credential) ||
        !gf_operations_offer(&asked->greeting, false, hello->spec_hash, extensions) ||
        !gf_hello_extend(extensions, &asked->credential, &queue) ||
        !gf_extension_add(extensions, GF_EXTENSION_LOOK, NULL, 0)) {
        return false;
    }
    gf_credential_prove(&asked->credential, &asked->greeting, hello, extensions, hello->proof);
    header = (struct gf_header){.op = GF_OP_HELLO,
                                .size = (uint32_t)(sizeof header + sizeof *hello + extensions->size)};
    return gf_transport_write(transport, &header, sizeof header) == 0 &&
           gf_transport_write(transport, hello, sizeof *hello) == 0 &&
           gf_transport_write(transport, extensions->data, extensions->size) == 0;
}

static bool is_whole(const struct asked *asked, const struct gf_header *header, const char *body) {
    uint8_t proof[GF_HASH_SIZE];
    const struct gf_devices *said = (const struct gf_devices *)body;
    size_t size = header->size - sizeof *header;
    gf_credential_mac(&asked->credential, GF_PROOF_SERVER, &asked->greeting, &asked->hello, NULL, 0, proof);
    return size >= sizeof *said && gf_digest_equal(proof, said->proof) &&
           size == sizeof *said + (uint64_t)said->device_count * sizeof(struct gf_look_device) +
                       (uint64_t)said->process_count * sizeof(struct gf_look_process);
}

/* NULL: nothing came of it, or there is another place to ask. */
static char *ask(struct asked *asked, bool *again) {
    struct gf_transport transport = {.fd = -1};
    struct gf_header header;
    char why[256], next[GF_ADDRESS_MAX], *body = NULL;
    *again = false;
    if (!gf_transport_open(&transport, asked->place, why, sizeof why)) {
        gf_info("NVML: cannot connect to %s: %s", asked->place, why);
        return NULL;
    }
    if (say_hello(&transport, asked)) {
        body = gf_read_frame(&transport, &header, TIMEOUT_MS);
    }
    gf_transport_close(&transport);
    if (body != NULL && header.op == GF_OP_DEVICES && is_whole(asked, &header, body)) {
        return body;
    }
    if (body != NULL && header.op == GF_OP_REDIRECT &&
        gf_redirect_take(&asked->credential, &asked->greeting, &asked->hello, &header, body, next) &&
        gf_transport_may_follow(asked->place, next)) {
        memcpy(asked->place, next, sizeof next);
        *again = true;
    } else if (body != NULL && header.op == GF_OP_REFUSED &&
               header.size >= sizeof header + sizeof(struct gf_refused)) {
        gf_info("NVML: %s refused a look: %s", asked->place, body + sizeof(struct gf_refused));
    } else {
        gf_info("NVML: %s does not say what this program has", asked->place);
    }
    free(body);
    return NULL;
}

__attribute__((visibility("default"))) uint64_t gpuferry_held(void) {
    return gf_session_state() == GF_READY ? gf_window_held() : 0;
}

__attribute__((visibility("default"))) struct gf_devices *gpuferry_look(void) {
    const char *address = getenv("GPUFERRY_MONITOR");
    struct asked *asked = calloc(1, sizeof *asked);
    char *body = NULL;
    if (asked != NULL && address != NULL && strlen(address) < sizeof asked->place &&
        gf_credential_read(&asked->credential)) {
        bool again = true;
        memcpy(asked->place, address, strlen(address) + 1);
        for (int asks = 0; again && asks <= REDIRECTS_MOST; asks++) {
            body = ask(asked, &again);
        }
    }
    free(asked);
    if (body != NULL && gf_session_state() == GF_READY) {
        gf_devices_keep((struct gf_devices *)body);
    }
    return (struct gf_devices *)body;
}
