#include "wire/link_set.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpuferry/frames.h"
#include "wire/fatbin.h"

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *list;
    struct gf_fatbin nothing; /* what `data` points at: nvcc's linker made nothing */
    const void *containers[];
};

static const void *container_at(const char *image, size_t size, uint64_t offset) {
    struct gf_fatbin container;
    if (offset % 8 != 0 || offset > size || size - offset < sizeof container) {
        return NULL;
    }
    memcpy(&container, image + offset, sizeof container);
    uint64_t left = size - offset;
    if (container.magic != GF_FATBIN_MAGIC || container.header_size > left ||
        container.size > left - container.header_size) {
        return NULL;
    }
    return image + offset;
}

void *gf_link_set_wrap(const void *image, size_t size) {
    struct gf_link_set head;
    if (size < sizeof head) {
        return NULL;
    }
    memcpy(&head, image, sizeof head);
    if (head.magic != GF_LINK_SET_MAGIC || head.count == 0 ||
        head.count > (size - sizeof head) / sizeof(uint64_t)) {
        return NULL;
    }
    struct wrapper *wrapper = calloc(1, sizeof *wrapper + (head.count + 1u) * sizeof(void *));
    if (wrapper == NULL) {
        return NULL;
    }
    wrapper->magic = GF_WRAPPER_MAGIC;
    wrapper->version = 2;
    wrapper->nothing = (struct gf_fatbin){GF_FATBIN_MAGIC, 1, sizeof wrapper->nothing, 0};
    wrapper->data = &wrapper->nothing;
    wrapper->list = wrapper->containers;
    for (uint32_t i = 0; i < head.count; i++) {
        uint64_t offset;
        memcpy(&offset, (const char *)image + sizeof head + i * sizeof offset, sizeof offset);
        wrapper->containers[i] = container_at(image, size, offset);
        if (wrapper->containers[i] == NULL) {
            free(wrapper);
            return NULL;
        }
    }
    return wrapper;
}
