#include "extent.h"
#include "wire/readable.h"
#include <stdint.h>

/* No image is larger, and every page of what is claimed is looked at: a few words could name terabytes. */
static const uint64_t MOST = 1ull << 31;

bool sim_extent_holds(const void *image, size_t limit, uint64_t offset, uint64_t size) {
    if (limit != 0)
        return offset <= limit && size <= limit - offset;
    return offset < MOST && size < MOST && gf_readable((const char *)image + offset, size);
}
