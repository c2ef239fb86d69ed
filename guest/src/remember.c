#include "remember.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "objects.h"

enum { PLACES = 256, REQUEST_MOST = 64, REPLY_MOST = 16 };

struct answer {
    uint64_t settings; /* that held when it was asked for; 0: the place is empty */
    uint64_t context;
    uint16_t op;
    uint8_t size, reply_size;
    uint8_t request[REQUEST_MOST], reply[REPLY_MOST];
};

static _Atomic uint64_t settings = 1; /* counts what was set */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct answer answers[PLACES]; /* one that wants another's place takes it */

static struct answer *place_of(uint16_t op, uint64_t context, const void *request, size_t size) {
    const uint8_t *bytes = request;
    uint64_t hash = (UINT64_C(0xcbf29ce484222325) ^ op ^ context << 16);
    for (size_t i = 0; i < size; i++) { /* FNV-1a */
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return &answers[(hash ^ hash >> 32) % PLACES];
}

bool gf_recall(uint16_t op, const void *request, size_t size, void *reply, size_t reply_size,
               uint64_t *asked) {
    const uint64_t context = gf_context_wire_id();
    *asked = atomic_load(&settings);
    pthread_mutex_lock(&lock);
    const struct answer *known = place_of(op, context, request, size);
    const bool found = known->settings == *asked && known->op == op && known->context == context &&
                       known->size == size && known->reply_size == reply_size &&
                       memcmp(known->request, request, size) == 0;
    if (found) {
        memcpy(reply, known->reply, reply_size);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void gf_remember(uint16_t op, const void *request, size_t size, const void *reply, size_t reply_size,
                 uint64_t asked) {
    const uint64_t context = gf_context_wire_id();
    if (size > REQUEST_MOST || reply_size > REPLY_MOST) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct answer *answer = place_of(op, context, request, size);
    *answer = (struct answer){.settings = asked,
                              .context = context,
                              .op = op,
                              .size = (uint8_t)size,
                              .reply_size = (uint8_t)reply_size};
    memcpy(answer->request, request, size);
    memcpy(answer->reply, reply, reply_size);
    pthread_mutex_unlock(&lock);
}

void gf_forget(void) {
    atomic_fetch_add(&settings, 1);
}
