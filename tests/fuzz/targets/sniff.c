/* What the simulated device takes an image for, and how long. */
#include "targets.h"

#include <string.h>

#include "exec/sniff.h"

#define WRAPPER_MAGIC                                                                                        \
    0x466243b1u /* holds pointers: a program's own, and refused when it comes by the wire                    \
                 */

void fuzz_sniff(const uint8_t *data, size_t size) {
    struct sim_image_parts parts;
    char log[256];
    uint32_t magic = 0;
    memcpy(&magic, data, size < sizeof magic ? size : sizeof magic);
    if (magic == WRAPPER_MAGIC || size == 0) {
        return;
    }
    if (sim_image_sniff(data, size, &parts, log, sizeof log) != CUDA_SUCCESS) {
        return;
    }
    for (uint32_t i = 0; i < parts.count; i++) {
        volatile uint8_t sum = 0;
        for (size_t at = 0; at < parts.items[i].size; at++) {
            sum = (uint8_t)(sum + ((const uint8_t *)parts.items[i].data)[at]);
        }
    }
}
