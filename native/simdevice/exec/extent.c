#include "extent.h"
#include "wire/readable.h"
#include <stdint.h>

bool sim_extent_holds(const void *image, size_t limit, uint64_t offset, uint64_t size) {
    if (limit != 0)
        return offset <= limit && size <= limit - offset;
    return offset < 1ull << 40 && size < 1ull << 40 && gf_readable((const char *)image + offset, size);
}
