#include "known_images.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpuferry/messages.h"
#include "gpuferry/results.h"
#include "session.h"

#define ATTEMPTS 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Lock held. */
static bool is_listed(const uint8_t hash[GF_HASH_SIZE]) {
    for (uint32_t i = 0; i < gf_session.image_hash_count; i++) {
        if (memcmp(gf_session.image_hashes[i], hash, GF_HASH_SIZE) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_known(const uint8_t hash[GF_HASH_SIZE]) {
    pthread_mutex_lock(&lock);
    bool found = is_listed(hash);
    pthread_mutex_unlock(&lock);
    return found;
}

void gf_image_remember(const uint8_t hash[GF_HASH_SIZE]) {
    pthread_mutex_lock(&lock);
    uint8_t (*grown)[GF_HASH_SIZE] =
        is_listed(hash)
            ? NULL
            : realloc(gf_session.image_hashes, (gf_session.image_hash_count + 1u) * sizeof *grown);
    if (grown != NULL) {
        memcpy(grown[gf_session.image_hash_count++], hash, GF_HASH_SIZE);
        gf_session.image_hashes = grown;
    }
    pthread_mutex_unlock(&lock);
}

static CUresult send_image(const uint8_t hash[GF_HASH_SIZE], const char *data, size_t size) {
    struct gf_req_sessionImageData request = {.size = size};
    memcpy(request.hash, hash, sizeof request.hash);
    CUresult result = CUDA_SUCCESS;
    while (request.offset < size && result == CUDA_SUCCESS) {
        uint64_t left = size - request.offset, part = left < GF_CHUNK ? left : GF_CHUNK;
        struct gf_rows rows = {(char *)data + request.offset, part, part, 1};
        result = gf_send_rows(GF_OP_sessionImageData, &request, sizeof request, &rows);
        request.offset += part;
    }
    return result;
}

/* A server that does not hold the image is asked again: it may have forgotten it, or the session may have
 * moved, more than once, before the image belonged to anything. */
CUresult gf_call_with_image(struct gf_call *call, const struct iovec *parts, int count,
                            const uint8_t hash[GF_HASH_SIZE], const void *data, size_t size) {
    const struct gf_call unasked = *call;
    bool known = is_known(hash);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint32_t held = 0;
        CUresult result = known ? CUDA_SUCCESS : send_image(hash, data, size);
        *call = unasked;
        result = result != CUDA_SUCCESS ? result : gf_call_parts(call, parts, count);
        if (result != CUDA_SUCCESS && call->done && call->status == CUDA_SUCCESS &&
            !gf_destroys_context(result)) {
            /* an earlier call's failure: to be told by one that waits for the device */
            gf_channel_latch(call->context_id, result);
            result = CUDA_SUCCESS;
        }
        memcpy(&held, call->reply, sizeof held);
        if (result != CUDA_SUCCESS || held != 0) {
            if (result == CUDA_SUCCESS) {
                gf_image_remember(hash);
            }
            return result;
        }
        free(call->payload);
        call->payload = NULL;
        known = false;
    }
    return CUDA_ERROR_UNKNOWN;
}

CUresult gf_image_lend(const uint8_t hash[GF_HASH_SIZE], const void *data, size_t size) {
    CUresult result = is_known(hash) ? CUDA_SUCCESS : send_image(hash, data, size);
    if (result == CUDA_SUCCESS) {
        gf_image_remember(hash);
    }
    return result;
}
