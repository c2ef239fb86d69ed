/* What the environment asks of a driver, beside which devices there are (visible.h). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

/* CUDA_LAUNCH_BLOCKING: a launch returns when the kernel has run, with its error. */
bool gf_asked_launch_blocking(void);
/* CUDA_MODULE_LOADING; `unasked`: where it asks for neither. */
CUmoduleLoadingMode gf_asked_loading(CUmoduleLoadingMode unasked);
/* strtod that writes a point whatever the program's locale writes. */
double gf_asked_number(const char *text, char **end);
/* As parse_size of guest/units.py reads it: "2GiB", "512M", "1.5 gb"; units are binary. False: it is no size.
 */
bool gf_asked_size(const char *text, uint64_t *bytes);
