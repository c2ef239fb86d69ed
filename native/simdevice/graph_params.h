/* The parameters of one kind of node as CUgraphNodeParams. */
#pragma once
#include "sim.h"

static inline CUgraphNodeParams sim_kernel_params(const CUDA_KERNEL_NODE_PARAMS *p) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL,
                               .kernel = {p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX,
                                          p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->kernelParams,
                                          p->extra, p->kern, p->ctx}};
}

static inline CUgraphNodeParams sim_kernel_params_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL,
                               .kernel = {p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX,
                                          p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->kernelParams,
                                          p->extra, NULL, NULL}};
}

static inline CUgraphNodeParams sim_copy_params(const CUDA_MEMCPY3D *p, CUcontext context) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                               .memcpy = {.copyCtx = context, .copyParams = *p}};
}

static inline CUgraphNodeParams sim_memset_params(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context) {
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, context}};
}

static inline CUgraphNodeParams sim_host_params(const CUDA_HOST_NODE_PARAMS *p) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST,
                               .host = {.fn = p->fn, .userData = p->userData}};
}

static inline CUgraphNodeParams sim_batch_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                               .memOp = {p->ctx, p->count, p->paramArray, p->flags}};
}
