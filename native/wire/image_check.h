/* Images of programs before a driver sees them: a driver is given an address and no length. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL if whoever reads the image stays within its `size` bytes, behind which there is a NUL; else what is
 * wrong with it. Headers and tables are measured, what they describe is left to the driver. `is_input`: of a
 * link, where libraries are allowed and link sets are not. */
const char *gf_image_fault(const void *image, size_t size, int is_input);

#ifdef __cplusplus
}
#endif
