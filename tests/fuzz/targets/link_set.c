/* A link set that a guest sends: a list of containers, made into what the driver takes. */
#include "targets.h"

#include <stdlib.h>

#include "wire/link_set.h"

struct container {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
};

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const struct container *const *list;
};

/* All that the driver would read is inside. */
static void read_all(const struct container *container) {
    const uint8_t *bytes = (const uint8_t *)container;
    uint64_t size = container->header_size + container->size;
    volatile uint8_t last = size > 0 ? bytes[size - 1] : 0;
    (void)last;
}

void fuzz_link_set(const uint8_t *data, size_t size) {
    struct wrapper *wrapper = gf_link_set_wrap(data, size);
    for (size_t i = 0; wrapper != NULL && wrapper->list[i] != NULL; i++) {
        read_all(wrapper->list[i]);
    }
    free(wrapper);
}
