#include "conditional.h"

CUresult sim_conditional_keep(struct sim_node *node) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
