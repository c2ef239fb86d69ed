#define _GNU_SOURCE
#include "sniff.h"
#include "cubin.h"
#include "extent.h"
#include "skip.h"
#include "wire/fatbin.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *const *prelinked; /* version 2: containers, the last NULL */
};

static CUresult bad(char *log, size_t log_size, const char *what) {
    snprintf(log, log_size, "%s", what);
    return CUDA_ERROR_INVALID_IMAGE;
}

static uint32_t magic_of(const void *image) {
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    return magic;
}

CUresult sim_image_parts_add(struct sim_image_parts *parts, const void *data, size_t size) {
    struct sim_image_part *items = parts->items;
    bool full = (parts->count & (parts->count - 1)) == 0; /* the room is the next power of two */
    if (full && (items = realloc(items, (2 * parts->count + 1) * sizeof *items)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    items[parts->count++] = (struct sim_image_part){data, size};
    parts->items = items;
    return CUDA_SUCCESS;
}

void sim_image_parts_free(struct sim_image_parts *parts) {
    free(parts->items);
    *parts = (struct sim_image_parts){.kind = parts->kind};
}

static CUresult add_container(const void *image, size_t limit, struct sim_image_parts *parts, char *log,
                              size_t log_size) {
    struct gf_fatbin header;
    if (limit != 0 && limit < sizeof header)
        return bad(log, log_size, "the fatbin is cut short");
    memcpy(&header, image, sizeof header);
    if (header.magic != GF_FATBIN_MAGIC || header.header_size < sizeof header || header.size > 1ull << 36)
        return bad(log, log_size, "the fatbin's header is damaged");
    if (!sim_extent_holds(image, limit, 0, header.header_size + header.size))
        return bad(log, log_size, "the fatbin is cut short");
    return sim_image_parts_add(parts, image, header.header_size + header.size);
}

static CUresult add_wrapper(const void *image, size_t limit, struct sim_image_parts *parts, char *log,
                            size_t log_size) {
    struct wrapper wrapper;
    if (limit != 0 && limit < sizeof wrapper)
        return bad(log, log_size, "the fatbin wrapper is cut short");
    memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.version != 1 && wrapper.version != 2)
        return bad(log, log_size, "the fatbin wrapper has an unknown version");
    if (wrapper.data != NULL) {
        CUresult result = add_container(wrapper.data, 0, parts, log, log_size);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (wrapper.version == 2 && wrapper.prelinked != NULL)
        for (const void *const *next = wrapper.prelinked; *next != NULL; next++) {
            CUresult result = add_container(*next, 0, parts, log, log_size);
            if (result != CUDA_SUCCESS)
                return result;
        }
    return parts->count != 0 ? CUDA_SUCCESS : bad(log, log_size, "the fatbin wrapper is empty");
}

static CUresult add_linked(const void *image, size_t limit, struct sim_image_parts *parts, char *log,
                           size_t log_size) {
    struct sim_linked_header header;
    if (limit != 0 && limit < sizeof header)
        return bad(log, log_size, "the linked image is cut short");
    memcpy(&header, image, sizeof header);
    if (header.size < sizeof header || header.size > 1ull << 36 ||
        !sim_extent_holds(image, limit, 0, header.size))
        return bad(log, log_size, "the linked image is cut short");
    return sim_image_parts_add(parts, image, header.size);
}

static CUresult add_cubin(const void *image, size_t limit, struct sim_image_parts *parts, char *log,
                          size_t log_size) {
    const void *content;
    size_t size;
    if (sim_cubin_content(image, limit, &content, &size))
        return add_linked(content, size, parts, log, log_size);
    if (sim_code_skipped()) {
        size = sim_cubin_size(image, limit);
        if (size == 0)
            return bad(log, log_size, "the machine code's file is damaged");
        return sim_image_parts_add(parts, image, size);
    }
    snprintf(log, log_size,
             "the image holds machine code (SASS) only; the simulated device needs PTX, or "
             "GPUFERRY_SIM_CODE=skip, with which no kernel runs");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* Where white space and comments end; a comment that is not closed does not. */
static const char *behind_blanks(const char *at, const char *end) {
    while (at != NULL && at < end) {
        size_t left = (size_t)(end - at);
        if (*at == ' ' || (*at >= '\t' && *at <= '\r')) {
            at++;
        } else if (left >= 2 && memcmp(at, "//", 2) == 0) {
            at = memchr(at, '\n', left);
        } else if (left >= 2 && memcmp(at, "/*", 2) == 0) {
            at = memmem(at + 2, left - 2, "*/", 2);
            at = at != NULL ? at + 2 : NULL;
        } else {
            return at;
        }
    }
    return end;
}

/* NVIDIA's driver takes a text for PTX by its first word. */
static bool is_ptx(const char *text, size_t size) {
    static const char word[] = ".version";
    const char *end = text + size, *at = behind_blanks(text, end);
    return (size_t)(end - at) >= sizeof word - 1 && memcmp(at, word, sizeof word - 1) == 0;
}

CUresult sim_image_sniff(const void *image, size_t size, struct sim_image_parts *parts, char *log,
                         size_t log_size) {
    const char *text = image;
    *parts = (struct sim_image_parts){0};
    if (image == NULL || (size != 0 && size < 4))
        return bad(log, log_size, "there is no image");
    /* A text shorter than four bytes without a given size: the magics contain no NUL within their first
     * bytes. */
    size_t known = size != 0 ? size : strnlen(text, 4);
    if (known >= 4) {
        parts->kind = SIM_IMAGE_CUBIN;
        if (memcmp(text, "\177ELF", 4) == 0)
            return add_cubin(image, size, parts, log, log_size);
        parts->kind = SIM_IMAGE_FATBIN;
        if (magic_of(image) == GF_WRAPPER_MAGIC)
            return add_wrapper(image, size, parts, log, log_size);
        if (magic_of(image) == GF_FATBIN_MAGIC)
            return add_container(image, size, parts, log, log_size);
    }
    parts->kind = SIM_IMAGE_PTX;
    size_t length = size != 0 ? strnlen(text, size) : strlen(text);
    if (!is_ptx(text, length))
        return bad(log, log_size, "the image is neither a fatbin nor PTX");
    return sim_image_parts_add(parts, text, length);
}
