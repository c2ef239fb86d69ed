/* What CUDA's own variables ask of a driver, beside which devices there are (visible.h). */
#pragma once
#include <stdbool.h>

#include "driver_interop/cuda_driver.h"

/* CUDA_LAUNCH_BLOCKING: a launch returns when the kernel has run, with its error. */
bool gf_asked_launch_blocking(void);
/* CUDA_MODULE_LOADING; `unasked`: where it asks for neither. */
CUmoduleLoadingMode gf_asked_loading(CUmoduleLoadingMode unasked);
