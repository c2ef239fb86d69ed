/* Images that the driver has to link (struct gf_link_set), as the driver takes them. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A fatbin wrapper of version 2 whose list points into `image`, to be freed with free() once the driver has
 * loaded it; NULL if the bytes are no sound link set, or memory is out. */
void *gf_link_set_wrap(const void *image, size_t size);

#ifdef __cplusplus
}
#endif
