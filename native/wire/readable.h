/* Whether bytes can be read, for images that come as an address and nothing else. */
#pragma once
#include <stddef.h>

/* False: at least one of them would be a fault. True where the system does not let us ask. */
int gf_readable(const void *start, size_t size);
