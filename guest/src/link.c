#include "link.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "codecs.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "image.h"
#include "known_images.h"
#include "objects.h"
#include "stats.h"
#include "steps.h"
#include "wire/readable.h"
#include "wire/sha256.h"

#define NAME_MAX_SIZE 4096 /* names are for messages */

/* Guards the logs of all links, and what becomes their images. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void gf_link_ended(struct gf_object *object) {
    free(((struct gf_link *)object)->image);
}

CUresult gf_cuLinkCreate_v2_decode(unsigned count, CUjit_option *options, void **values, CUlinkState *state) {
    return gf_jit_options(count, options, values, &gf_link_find(*state)->log);
}

/* What a step took and said; the texts are the first of what came with its answer. */
static void report(struct gf_link *link, const struct gf_call *call, uint32_t errors, uint32_t infos,
                   uint64_t started) {
    const char *text = call->payload;
    if (text == NULL || (uint64_t)errors + infos > call->payload_size) {
        text = "";
        errors = infos = 0;
    }
    float milliseconds = (float)((double)(gf_now() - started) / 1e6);
    pthread_mutex_lock(&lock);
    gf_jit_append(&link->log, text, errors, text + errors, infos, milliseconds);
    pthread_mutex_unlock(&lock);
}

CUresult gf_link_add(struct gf_link *link, CUjitInputType type, const void *data, size_t size,
                     const char *name, unsigned count, CUjit_option *options, void **values) {
    CUresult result = gf_jit_input_options(count, options, values);
    if (result == CUDA_SUCCESS && atomic_load(&link->over) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* A text may end before its size does; nothing else may. */
    size = type == CU_JIT_INPUT_PTX && size > 0 ? strnlen(data, size - 1) + 1 : size;
    data = gf_image_unwrap(data, &size);
    if (result != CUDA_SUCCESS || data == NULL || !gf_readable(data, size)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_IMAGE;
    }
    struct gf_req_sessionLinkAdd request = {
        .link = atomic_load(&link->object.handle),
        .size = size,
        .type = type,
        .name_size = name == NULL ? 0 : (uint32_t)strnlen(name, NAME_MAX_SIZE),
    };
    struct gf_rep_sessionLinkAdd reply = {0};
    struct gf_call call = {.op = GF_OP_sessionLinkAdd, .reply = &reply, .reply_size = sizeof reply};
    struct gf_bytes behind;
    uint64_t started = gf_now();
    gf_sha256(data, size, request.hash);
    gf_bytes_begin(&behind);
    gf_bytes_put(&behind, name, request.name_size, 1);
    result = gf_append_CUjit_options(&behind, count, options, values);
    if (result == CUDA_SUCCESS) {
        struct iovec parts[] = {{&request, sizeof request}, {behind.data, behind.size}};
        result = gf_call_with_image(&call, parts, 2, request.hash, data, size);
        report(link, &call, reply.error_size, reply.info_size, started);
    }
    free(call.payload);
    gf_bytes_end(&behind);
    return result;
}

CUresult gf_link_add_file(CUlinkState state, CUjitInputType type, const char *path, unsigned count,
                          CUjit_option *options, void **values) {
    void *data;
    size_t size;
    CUresult result = gf_file_read(path, &data, &size);
    if (result == CUDA_SUCCESS) {
        result = size == 0 ? CUDA_ERROR_INVALID_IMAGE
                           : gf_cuLinkAddData_v2(state, type, data, size, path, count, options, values);
        free(data);
    }
    return result;
}

/* The rest of a linked image, of which `have` bytes came with the answer. */
static CUresult fetch(uint64_t link, char *image, size_t have, size_t size) {
    CUresult result = CUDA_SUCCESS;
    while (have < size && result == CUDA_SUCCESS) {
        size_t left = size - have, part = left < GF_CHUNK ? left : GF_CHUNK;
        struct gf_req_sessionLinkImage request = {.link = link, .offset = have, .size = part};
        struct gf_call call = {.op = GF_OP_sessionLinkImage, .rows = {image + have, part, part, 1}};
        result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
        have += part;
    }
    return result;
}

static CUresult complete(struct gf_link *link, char **image, size_t *size) {
    struct gf_req_sessionLinkComplete request = {.link = atomic_load(&link->object.handle)};
    struct gf_rep_sessionLinkComplete reply = {0};
    struct gf_call call = {.op = GF_OP_sessionLinkComplete, .reply = &reply, .reply_size = sizeof reply};
    uint64_t started = gf_now();
    CUresult result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    report(link, &call, reply.error_size, reply.info_size, started);
    size_t said = (size_t)reply.error_size + reply.info_size;
    size_t came = said < call.payload_size ? call.payload_size - said : 0;
    came = came < reply.size ? came : reply.size;
    *size = reply.size;
    *image = result == CUDA_SUCCESS && *size < SIZE_MAX ? malloc(*size + 1) : NULL;
    if (*image != NULL) {
        if (came > 0) {
            memcpy(*image, (char *)call.payload + said, came);
        }
        result = fetch(request.link, *image, came, *size);
    } else if (result == CUDA_SUCCESS) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(call.payload);
    return result;
}

/* Whoever asks first; the program keeps that image as long as the link. */
static void adopt(struct gf_link *link, char *image, size_t size) {
    uint8_t hash[GF_HASH_SIZE];
    gf_sha256(image, size, hash);
    gf_image_remember(hash);
    pthread_mutex_lock(&lock);
    if (link->image == NULL) {
        link->image_size = size;
        link->image = image;
        image = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(image);
}

CUresult gf_link_complete(struct gf_link *link, void **image, size_t *size) {
    char *made = NULL;
    size_t made_size;
    CUresult result = atomic_load(&link->over);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = complete(link, &made, &made_size);
    if (result != CUDA_SUCCESS) {
        free(made);
        if (result == CUDA_ERROR_UNKNOWN) {
            atomic_store(&link->over, result);
        }
        return result;
    }
    atomic_store(&link->over, CUDA_ERROR_INVALID_HANDLE);
    adopt(link, made, made_size);
    *image = atomic_load(&link->image);
    if (size != NULL) {
        *size = link->image_size;
    }
    return CUDA_SUCCESS;
}
