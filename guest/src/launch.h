/* What launches and occupancy have in common. */
#pragma once
#include "driver_interop/cuda_driver.h"
#include "gpuferry/frames.h"
#include "module.h"

/* Launch attributes that have to travel, of each kind the last one; NOT_SUPPORTED for one that cannot. Room
 * for GF_LAUNCH_ATTRIBUTES_MAX, which is more than there are kinds that do. */
#define GF_LAUNCH_ATTRIBUTES_MAX 16
#define PARAMS_MAX               32764
CUresult gf_launch_attributes(const CUlaunchConfig *config, struct gf_launch_attribute *travel,
                              uint32_t *count);
/* Everything that CUDA refuses of a launch at once. */
CUresult gf_launch_check(const CUlaunchConfig *config, const struct gf_callable *callable);
/* The same of a launch in a context that need not be the current one; 0: in none. */
CUresult gf_launch_check_in(uint64_t context, const CUlaunchConfig *config,
                            const struct gf_callable *callable);
/* The values of a kernel's parameters, as its table says, into `packed`, which has room for them. */
CUresult gf_launch_pack(const struct gf_kernel_info *info, void **kernelParams, void **extra, char *packed);
/* The kernel wants to be told its clusters, and nobody does. A node of a graph is told after it was added. */
bool gf_launch_lacks_cluster(const CUlaunchConfig *config, const struct gf_callable *callable);
bool gf_launch_is_cooperative(const CUlaunchConfig *config);
/* The launch may begin before what comes before it in the stream has ended. */
bool gf_launch_is_programmatic(const CUlaunchConfig *config);
