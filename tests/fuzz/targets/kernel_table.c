/* The table of kernels that a GPU server sends with an image, as the guest reads it. */
#include "targets.h"

#include <stdlib.h>
#include <string.h>

#include "image.h"

void fuzz_kernel_table(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    uint32_t count = (uint32_t)fuzz_take(&input, 2);
    char *table = malloc(input.left + (input.left == 0));
    memcpy(table, input.at, input.left);
    struct gf_kernel_table *parsed = gf_kernel_table_parse(table, input.left, count, 2);
    if (parsed == NULL) {
        free(table);
        return;
    }
    for (uint32_t i = 0; i < parsed->count; i++) {
        const struct gf_kernel_info *kernel = &parsed->kernels[i];
        uint64_t sum = 0;
        for (uint32_t p = 0; p < kernel->param_count; p++) {
            sum += kernel->params[p].offset + kernel->params[p].size;
        }
        if (kernel->param_count > 0 && sum < kernel->param_bytes) {
            abort();
        }
        gf_kernel_table_find(parsed, kernel->name);
    }
    gf_kernel_table_free(parsed);
}
