#include "link.h"
#include "service.h"
#include "wire/fatbin.h"
#include "wire/sha256.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_link {
    int target;
    uint8_t *bytes; /* a linked image under construction */
    size_t size, capacity;
    struct sim_blob cubin; /* once it is complete */
};

static bool append(struct sim_link *link, const void *data, size_t size) {
    if (size > link->capacity - link->size) {
        size_t capacity = 2 * link->capacity + size + 4096;
        uint8_t *grown = realloc(link->bytes, capacity);
        if (grown == NULL)
            return false;
        link->bytes = grown;
        link->capacity = capacity;
    }
    memcpy(link->bytes + link->size, data, size);
    link->size += size;
    return true;
}

static bool pad(struct sim_link *link) {
    static const uint8_t zeros[8];
    return append(link, zeros, -link->size & 7);
}

static struct sim_linked_header *header_of(struct sim_link *link) {
    return (struct sim_linked_header *)link->bytes;
}

CUresult sim_link_create(int target, unsigned most_registers, struct sim_link **out) {
    const struct sim_linked_header header = {
        .magic = SIM_LINKED_MAGIC, .target = (uint32_t)target, .most_registers = most_registers};
    *out = calloc(1, sizeof **out);
    if (*out == NULL || !append(*out, &header, sizeof header)) {
        free(*out);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*out)->target = target;
    return CUDA_SUCCESS;
}

/* Asks the compile service about all inputs, unless the answer is in the cache. */
static CUresult ask(struct sim_link *link, enum sim_service_op op, const char *suffix, struct sim_blob *reply,
                    char *log, size_t log_size) {
    uint8_t content[32], key[32];
    char name[SIM_CACHE_NAME];
    header_of(link)->size = link->size;
    gf_sha256(link->bytes, link->size, content);
    sim_service_key(content, link->target, key);
    sim_cache_name(key, suffix, name);
    if (sim_cache_load(name, reply))
        return CUDA_SUCCESS;
    CUresult result =
        sim_service_call(op, link->target, key, link->bytes, link->size, NULL, 0, reply, log, log_size);
    if (result == CUDA_SUCCESS)
        sim_cache_store(name, reply->data, reply->size);
    return result;
}

static bool append_input(struct sim_link *link, const struct sim_image_parts *parts, const char *name) {
    struct sim_linked_input input = {.name_size = (uint32_t)strnlen(name, 4096)};
    for (uint32_t i = 0; i < parts->count; i++)
        input.size += parts->items[i].size;
    bool done = append(link, &input, sizeof input) && append(link, name, input.name_size) && pad(link);
    for (uint32_t i = 0; i < parts->count && done; i++)
        done = append(link, parts->items[i].data, parts->items[i].size);
    return done && pad(link);
}

/* A host object or a library; the service looks into it. */
static CUresult take_object(const void *data, size_t size, struct sim_image_parts *parts) {
    static const char library[8] = "!<arch>\n";
    bool known = (size >= 4 && memcmp(data, "\177ELF", 4) == 0) ||
                 (size >= sizeof library && memcmp(data, library, sizeof library) == 0);
    *parts = (struct sim_image_parts){.kind = SIM_IMAGE_OBJECT};
    return known ? sim_image_parts_add(parts, data, size) : CUDA_ERROR_INVALID_IMAGE;
}

/* Whatever is called a fatbin and does not look like one is text to NVIDIA's driver. */
static bool is_taken_for_text(enum sim_image_kind kind, const void *data, size_t size) {
    static const uint32_t magic = GF_FATBIN_MAGIC;
    bool fatbin = size >= sizeof magic && memcmp(data, &magic, sizeof magic) == 0;
    return kind == SIM_IMAGE_PTX || (kind == SIM_IMAGE_FATBIN && !fatbin);
}

static const char *name_of(enum sim_image_kind kind) {
    static const char *const names[] = {"PTX", "fatbin", "cubin", "object or library"};
    return names[kind];
}

CUresult sim_link_add(struct sim_link *link, enum sim_image_kind kind, const void *data, size_t size,
                      const char *name, char *log, size_t log_size) {
    struct sim_image_parts parts;
    struct sim_blob checked;
    CUresult result = kind == SIM_IMAGE_OBJECT ? take_object(data, size, &parts)
                                               : sim_image_sniff(data, size, &parts, log, log_size);
    bool wrong = (result == CUDA_SUCCESS && parts.kind != kind) || result == CUDA_ERROR_INVALID_IMAGE;
    size_t before = link->size;
    bool added = !wrong && result == CUDA_SUCCESS && append_input(link, &parts, name);
    sim_image_parts_free(&parts);
    if (wrong) {
        snprintf(log, log_size, "%s is no sound %s", name, name_of(kind));
        return is_taken_for_text(kind, data, size) ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (added) {
        header_of(link)->count++;
        result = ask(link, SIM_SERVICE_LINK_CHECK, ".checked", &checked, log, log_size);
        if (result == CUDA_SUCCESS) {
            sim_blob_free(&checked);
            return CUDA_SUCCESS;
        }
        header_of(link)->count--;
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    link->size = before;
    return result;
}

CUresult sim_link_complete(struct sim_link *link, const void **image, size_t *size, char *log,
                           size_t log_size) {
    CUresult result = ask(link, SIM_SERVICE_LINK, ".cubin", &link->cubin, log, log_size);
    if (result == CUDA_SUCCESS) {
        *image = link->cubin.data;
        *size = link->cubin.size;
    }
    return result;
}

void sim_link_destroy(struct sim_link *link) {
    sim_blob_free(&link->cubin);
    free(link->bytes);
    free(link);
}
