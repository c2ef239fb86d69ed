#include "graph_memory.h"

CUresult sim_graph_memory_keep(struct sim_node *node, const struct sim_node_work *work) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sim_graph_memory_copy(struct sim_node *to, const struct sim_node *from) {
    return CUDA_SUCCESS;
}

void sim_graph_memory_clear(struct sim_node *node) {
}
