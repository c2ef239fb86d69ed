/* What the simulated device takes an image for, and how long; and that whoever checked it first may give the
 * device an address alone. */
#include "targets.h"

#include <stdlib.h>
#include <string.h>

#include "exec/skip.h"
#include "exec/sniff.h"

#define WRAPPER_MAGIC 0x466243b1u /* holds pointers: refused when it comes by the wire */

static bool skipped;

bool sim_code_skipped(void) {
    return skipped;
}

static void sniff(const uint8_t *data, size_t size) {
    struct sim_image_parts parts;
    char log[256];
    sim_image_sniff(data, size, &parts, log, sizeof log);
    for (uint32_t i = 0; i < parts.count; i++) {
        volatile uint8_t sum = 0;
        for (size_t at = 0; at < parts.items[i].size; at++) {
            sum = (uint8_t)(sum + ((const uint8_t *)parts.items[i].data)[at]);
        }
    }
    sim_image_parts_free(&parts);
}

#include "wire/image_check.h"

/* As an API server keeps it: with a NUL behind. */
static void check(const uint8_t *data, size_t size) {
    uint8_t *image = malloc(size + 1);
    memcpy(image, data, size);
    image[size] = '\0';
    gf_image_fault(image, size, 1);
    if (gf_image_fault(image, size, 0) == NULL) {
        sniff(image, 0);
    }
    free(image);
}

void fuzz_sniff(const uint8_t *data, size_t size) {
    uint32_t magic = 0;
    memcpy(&magic, data, size < sizeof magic ? size : sizeof magic);
    for (int i = 0; i < 2; i++) {
        skipped = i;
        check(data, size);
        if (magic != WRAPPER_MAGIC && size > 0) {
            sniff(data, size);
        }
    }
}
