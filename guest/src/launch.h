/* What launches and occupancy have in common. */
#pragma once
#include "driver_interop/cuda_driver.h"
#include "gpuferry/frames.h"

/* Launch attributes that have to travel; NOT_SUPPORTED for one that cannot. Room for
 * GF_LAUNCH_ATTRIBUTES_MAX. */
#define GF_LAUNCH_ATTRIBUTES_MAX 16
CUresult gf_launch_attributes(const CUlaunchConfig *config, struct gf_launch_attribute *travel,
                              uint32_t *count);
