/* Nodes of each kind: adding them, and reading and changing what they do. The calls for one kind are the
 * general ones with the kind's part of CUgraphNodeParams. */
#include "graph.h"
#include "graph_params.h"
#include <stdlib.h>

static CUresult add_to(struct sim_graph *graph, const struct sim_node_work *work,
                       const CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count,
                       struct sim_node **node) {
    struct sim_links links = {0};
    SIM_REQUIRE(graph);
    CUresult result = sim_links_read(graph, dependencies, data, count, &links);
    if (result == CUDA_SUCCESS)
        result = sim_graph_add(graph, work, &links, node);
    free(links.items);
    return result;
}

static CUresult check_graph(CUgraph handle) {
    SIM_GRAPHS_LOCKED();
    return sim_graph_find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_node(CUgraphNode handle, CUgraphNodeType type) {
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    return node && node->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies,
                    const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
    struct sim_node_work work = {.params = *params};
    struct sim_node *node;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out);
    SIM_TRY(check_graph(handle));
    SIM_TRY(sim_node_work_begin(&work));
    sim_graphs_lock();
    CUresult result = add_to(sim_graph_find(handle), &work, dependencies, data, count, &node);
    if (result == CUDA_SUCCESS) {
        *out = SIM_POINTER(CUgraphNode, node);
        /* what the call tells about an allocation or a conditional node */
        if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            params->alloc.dptr = node->params.alloc.dptr;
        else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            params->conditional.phGraph_out = node->params.conditional.phGraph_out;
    }
    sim_graphs_unlock();
    sim_node_work_end(&work);
    return result;
}

static CUresult set_work(struct sim_node *node, const struct sim_node_work *work) {
    SIM_REQUIRE(node && node->params.type == work->params.type);
    switch ((int)work->params.type) { /* what these own can not be replaced */
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        SIM_REQUIRE(!sim_node_is_captured(node));
        if (sim_graph_has_memory(node->bodies[0])) /* which is there once, and stays */
            return CUDA_ERROR_NOT_SUPPORTED;
        return sim_node_assign_kept(node, work);
    default:
        return sim_node_assign_kept(node, work);
    }
}

static CUresult set(CUgraphNode handle, const CUgraphNodeParams *params) {
    struct sim_node_work work = {.params = *params};
    SIM_TRY(sim_enter());
    SIM_TRY(check_node(handle, params->type));
    SIM_TRY(sim_node_work_begin(&work));
    sim_graphs_lock();
    CUresult result = set_work(sim_node_find(handle), &work);
    sim_graphs_unlock();
    sim_node_work_end(&work);
    return result;
}

static CUresult get(CUgraphNode handle, CUgraphNodeType type, CUgraphNodeParams *params) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && node->params.type == type);
    *params = node->params;
    return CUDA_SUCCESS;
}

/* Whether a kernel's function is of the context that is named beside it, if one is. */
static CUresult check_context(const CUgraphNodeParams *params) {
    struct sim_function *function = NULL;
    if (params && params->type == CU_GRAPH_NODE_TYPE_KERNEL && params->kernel.ctx)
        function = sim_acquire(SIM_HANDLE(params->kernel.func), SIM_FUNCTION);
    bool same = !function || function->module->context == sim_context_of(params->kernel.ctx);
    if (function)
        sim_release(function);
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
    SIM_REQUIRE(params);
    return add(node, graph, dependencies, data, count, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
    SIM_TRY(check_context(params));
    return cuGraphAddNode_v2(node, graph, dependencies, data, count, params);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params) {
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    SIM_REQUIRE(params);
    return set(node, params);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params) {
    SIM_TRY(check_context(params));
    return cuGraphNodeSetParams(node, params);
}

CUresult cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams *params) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && params);
    *params = node->params;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_kernel_params(p);
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p) {
    CUgraphNodeParams params;
    SIM_REQUIRE(p);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_KERNEL, &params));
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &params.kernel;
    *p = (CUDA_KERNEL_NODE_PARAMS){k->func,         k->gridDimX,  k->gridDimY,  k->gridDimZ,
                                   k->blockDimX,    k->blockDimY, k->blockDimZ, k->sharedMemBytes,
                                   k->kernelParams, k->extra,     k->kern,      k->ctx};
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_kernel_params(p);
    return set(node, &params);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_kernel_params_v1(p);
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    CUDA_KERNEL_NODE_PARAMS k;
    SIM_REQUIRE(p);
    SIM_TRY(cuGraphKernelNodeGetParams_v2(node, &k));
    *p = (CUDA_KERNEL_NODE_PARAMS_v1){k.func ? k.func : (CUfunction)k.kern,
                                      k.gridDimX,
                                      k.gridDimY,
                                      k.gridDimZ,
                                      k.blockDimX,
                                      k.blockDimY,
                                      k.blockDimZ,
                                      k.sharedMemBytes,
                                      k.kernelParams,
                                      k.extra};
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_kernel_params_v1(p);
    return set(node, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *p, CUcontext context) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_copy_params(p, context);
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p) {
    CUgraphNodeParams params;
    SIM_REQUIRE(p);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_MEMCPY, &params));
    *p = params.memcpy.copyParams;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_copy_params(p, NULL);
    return set(node, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_memset_params(p, context);
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p) {
    CUgraphNodeParams params;
    SIM_REQUIRE(p);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_MEMSET, &params));
    const CUDA_MEMSET_NODE_PARAMS_v2 *m = &params.memset;
    *p = (CUDA_MEMSET_NODE_PARAMS){m->dst, m->pitch, m->value, m->elementSize, m->width, m->height};
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_memset_params(p, NULL);
    return set(node, &params);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_host_params(p);
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p) {
    CUgraphNodeParams params;
    SIM_REQUIRE(p);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_HOST, &params));
    *p = (CUDA_HOST_NODE_PARAMS){params.host.fn, params.host.userData};
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_host_params(p);
    return set(node, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child) {
    CUgraphNodeParams params;
    SIM_REQUIRE(child);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_GRAPH, &params));
    *child = params.graph.graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                   size_t count, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event}};
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    CUgraphNodeParams params;
    SIM_REQUIRE(event);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &params));
    *event = params.eventRecord.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                      .eventRecord = {.event = event}};
    return set(node, &params);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    CUgraphNodeParams params;
    SIM_REQUIRE(event);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &params));
    *event = params.eventWait.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
    return set(node, &params);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_batch_params(p);
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
    CUgraphNodeParams params;
    SIM_REQUIRE(p);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &params));
    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *b = &params.memOp;
    *p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){b->ctx, b->count, b->paramArray, b->flags};
    return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = sim_batch_params(p);
    return set(node, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                .alloc = {p->poolProps, p->accessDescs, p->accessDescCount, p->bytesize, 0}};
    SIM_TRY(add(node, graph, dependencies, NULL, count, &params));
    p->dptr = params.alloc.dptr;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p) {
    CUgraphNodeParams params;
    SIM_REQUIRE(p);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &params));
    const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *a = &params.alloc;
    *p = (CUDA_MEM_ALLOC_NODE_PARAMS){a->poolProps, a->accessDescs, a->accessDescCount, a->bytesize, a->dptr};
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr pointer) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = pointer}};
    return add(node, graph, dependencies, NULL, count, &params);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *pointer) {
    CUgraphNodeParams params;
    SIM_REQUIRE(pointer);
    SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &params));
    *pointer = params.free.dptr;
    return CUDA_SUCCESS;
}
