/* Clusters: which blocks of a launch see each other's shared memory. */
#pragma once
#include "module.h"

enum { SIM_CLUSTER_PORTABLE = 8, SIM_CLUSTER_LARGEST = 16 };

struct sim_cluster_shape {
    uint32_t blocks[3]; /* in each dimension */
    bool is_explicit;   /* the launch or the kernel says it */
};

/* Whether the device has them: from compute capability 9.0 on. */
bool sim_has_clusters(void);
/* How many blocks a cluster of the function may have, whatever the launch says of its size. */
uint32_t sim_cluster_most(const struct sim_function *function, const CUlaunchConfig *config);
/* The kernel wants to be told its clusters, and nobody does. A node of a graph is told after it was added. */
bool sim_cluster_missing(const struct sim_function *function, const CUlaunchConfig *config);
/* The clusters of a launch. A grid of 0 blocks, for a question that is not about one, is divided by any. */
CUresult sim_cluster_shape(const struct sim_function *function, const CUlaunchConfig *config,
                           struct sim_cluster_shape *shape);
