#include "cluster.h"
#include "config.h"

bool sim_has_clusters(void) {
    return sim_config_get()->cc_major >= 9;
}

static const CUlaunchAttribute *find(const CUlaunchConfig *config, CUlaunchAttributeID id) {
    const CUlaunchAttribute *found = NULL;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == id)
            found = &config->attrs[i];
    return found;
}

/* A launch's own word on what is portable goes before the function's. */
static bool may_be_large(const struct sim_function *function, const CUlaunchConfig *config) {
    const CUlaunchAttribute *mode = find(config, CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE);
    if (mode && mode->value.portableClusterSizeMode != CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT)
        return mode->value.portableClusterSizeMode == CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE;
    return atomic_load(&function->attributes->non_portable) != 0;
}

uint32_t sim_cluster_most(const struct sim_function *function, const CUlaunchConfig *config) {
    if (!sim_has_clusters())
        return 1;
    uint32_t most = may_be_large(function, config) ? SIM_CLUSTER_LARGEST : SIM_CLUSTER_PORTABLE;
    uint32_t own = function->info->most_cluster;
    return own && own < most ? own : most;
}

/* What the kernel requires, by its code or by what the program has set; zeros: nothing. */
static void required(const struct sim_function *function, uint32_t blocks[3]) {
    for (int axis = 0; axis < 3; axis++)
        blocks[axis] = function->info->cluster[0]
                           ? function->info->cluster[axis]
                           : (uint32_t)atomic_load(&function->attributes->cluster[axis]);
}

/* A cluster that is not what the kernel requires, is too large or does not divide the grid is a
 * misconfiguration: cuda.h has one error for it. */
static CUresult check(const struct sim_function *function, const CUlaunchConfig *config,
                      const uint32_t blocks[3]) {
    const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    uint32_t needed[3];
    uint64_t size = 1;
    required(function, needed);
    for (int axis = 0; axis < 3; axis++) {
        if (blocks[axis] == 0 || blocks[axis] > SIM_CLUSTER_LARGEST ||
            (needed[axis] && blocks[axis] != needed[axis]) || grid[axis] % blocks[axis])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        size *= blocks[axis];
    }
    return size <= sim_cluster_most(function, config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

bool sim_cluster_missing(const struct sim_function *function, const CUlaunchConfig *config) {
    uint32_t needed[3];
    required(function, needed);
    return function->info->explicit_cluster && !needed[0] &&
           !find(config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
}

CUresult sim_cluster_shape(const struct sim_function *function, const CUlaunchConfig *config,
                           struct sim_cluster_shape *shape) {
    const CUlaunchAttribute *asked = find(config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    *shape = (struct sim_cluster_shape){{1, 1, 1}, asked != NULL};
    if (asked) {
        shape->blocks[0] = asked->value.clusterDim.x;
        shape->blocks[1] = asked->value.clusterDim.y;
        shape->blocks[2] = asked->value.clusterDim.z;
        return check(function, config, shape->blocks);
    }
    uint32_t needed[3];
    required(function, needed);
    if (!needed[0] && !needed[1] && !needed[2])
        return CUDA_SUCCESS;
    *shape = (struct sim_cluster_shape){{needed[0], needed[1], needed[2]}, true};
    return check(function, config, shape->blocks);
}
