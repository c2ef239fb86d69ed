#include "link.h"
#include "execute.h"
#include "sniff.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sim_link {
    uint8_t *bytes; /* a linked image under construction */
    size_t size, capacity;
};

static bool append(struct sim_link *link, const void *data, size_t size) {
    size_t padded = (size + 7) & ~(size_t)7;
    if (padded > link->capacity - link->size) {
        size_t capacity = 2 * link->capacity + padded + 4096;
        uint8_t *grown = realloc(link->bytes, capacity);
        if (grown == NULL)
            return false;
        link->bytes = grown;
        link->capacity = capacity;
    }
    memcpy(link->bytes + link->size, data, size);
    memset(link->bytes + link->size + size, 0, padded - size);
    link->size += padded;
    return true;
}

CUresult sim_link_create(struct sim_link **out) {
    const struct sim_linked_header header = {.magic = SIM_LINKED_MAGIC};
    *out = calloc(1, sizeof **out);
    if (*out == NULL || !append(*out, &header, sizeof header)) {
        free(*out);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult sim_link_add(struct sim_link *link, const void *data, size_t size, char *log, size_t log_size) {
    struct sim_image_parts parts;
    char unused[256];
    CUresult result = sim_image_sniff(data, size, &parts, log != NULL ? log : unused,
                                      log != NULL ? log_size : sizeof unused);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t length = parts.items[0].size;
    if (!append(link, &length, sizeof length) || !append(link, parts.items[0].data, parts.items[0].size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_linked_header *header = (struct sim_linked_header *)link->bytes;
    header->count++;
    return CUDA_SUCCESS;
}

CUresult sim_link_complete(struct sim_link *link, int cc, const void **image, size_t *size, char *log,
                           size_t log_size) {
    struct sim_linked_header *header = (struct sim_linked_header *)link->bytes;
    struct sim_image *opened;
    header->size = link->size;
    CUresult result = sim_image_open(link->bytes, link->size, cc, log, log_size, &opened);
    if (result != CUDA_SUCCESS)
        return result;
    sim_image_close(opened);
    *image = link->bytes;
    *size = link->size;
    return CUDA_SUCCESS;
}

void sim_link_destroy(struct sim_link *link) {
    if (link == NULL)
        return;
    free(link->bytes);
    free(link);
}
