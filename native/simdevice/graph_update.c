/* Changing an executable graph: one node, or all by another graph of the same shape. */
#include "driver_interop/word_update.h"
#include "graph_exec.h"
#include "graph_params.h"
#include "memory.h"
#include <stdlib.h>
#include <string.h>

/* Where memory is: a copy or a fill may not move to another device, or between host and device. What was
 * freed since the node was given it was the device's. */
static bool same_place(CUmemorytype type, uint64_t before, uint64_t after) {
    struct sim_range first, second;
    bool known_before = sim_ranges_find(&sim_memory, before, &first);
    bool known_after = sim_ranges_find(&sim_memory, after, &second);
    if (type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_DEVICE && !known_before))
        return true;
    return known_before == known_after && (!known_before || first.device == second.device);
}

/* Whose memory an end of a copy is, by whatever name: an array's, a device's or the program's. */
static CUmemorytype kind_of(CUmemorytype type, const void *host, CUdeviceptr device) {
    struct sim_range range;
    if (type == CU_MEMORYTYPE_ARRAY)
        return type;
    if (!sim_ranges_find(&sim_memory, type == CU_MEMORYTYPE_HOST ? (uint64_t)host : device, &range))
        return type == CU_MEMORYTYPE_DEVICE ? type : CU_MEMORYTYPE_HOST;
    return range.kind == SIM_RANGE_HOST || range.kind == SIM_RANGE_REGISTERED ? CU_MEMORYTYPE_HOST
                                                                              : CU_MEMORYTYPE_DEVICE;
}

static bool copies_alike(const CUDA_MEMCPY3D *before, const CUDA_MEMCPY3D *after) {
    CUmemorytype from = kind_of(before->srcMemoryType, before->srcHost, before->srcDevice);
    CUmemorytype to = kind_of(before->dstMemoryType, before->dstHost, before->dstDevice);
    return from == kind_of(after->srcMemoryType, after->srcHost, after->srcDevice) &&
           to == kind_of(after->dstMemoryType, after->dstHost, after->dstDevice) &&
           same_place(from, before->srcDevice, after->srcDevice) &&
           same_place(to, before->dstDevice, after->dstDevice);
}

/* Of a 2-D fill only the address and the value may change. */
static bool fills_alike(const CUDA_MEMSET_NODE_PARAMS_v2 *before, const CUDA_MEMSET_NODE_PARAMS_v2 *after) {
    if (!same_place(CU_MEMORYTYPE_DEVICE, before->dst, after->dst))
        return false;
    return (before->height <= 1 && after->height <= 1) ||
           (before->height == after->height && before->width == after->width &&
            before->elementSize == after->elementSize && before->pitch == after->pitch);
}

static bool allocates_alike(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *before,
                            const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *after) {
    return before->bytesize == after->bytesize &&
           memcmp(&before->poolProps, &after->poolProps, sizeof before->poolProps) == 0 &&
           before->accessDescCount == after->accessDescCount &&
           (!before->accessDescCount || memcmp(before->accessDescs, after->accessDescs,
                                               before->accessDescCount * sizeof *before->accessDescs) == 0);
}

static const CUlaunchAttribute *attribute_of(const struct sim_node *node, CUlaunchAttributeID id) {
    for (unsigned i = 0; i < node->attribute_count; i++)
        if (node->attributes[i].id == id)
            return &node->attributes[i];
    return NULL;
}

static bool is_cooperative(const struct sim_node *node) {
    const CUlaunchAttribute *attribute = attribute_of(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    return attribute && attribute->value.cooperative;
}

/* Whether an instantiated node may become what the other is. */
static CUgraphExecUpdateResult compare(const struct sim_node *before, const struct sim_node *after) {
    const CUgraphNodeParams *b = &before->params, *a = &after->params;
    if (b->type != a->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch ((int)b->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (before->context != after->context)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        return is_cooperative(before) == is_cooperative(after)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return before->context == after->context && copies_alike(&b->memcpy.copyParams, &a->memcpy.copyParams)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return before->context == after->context && fills_alike(&b->memset, &a->memset)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return b->conditional.type == a->conditional.type && before->context == after->context
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return before->context == after->context && words_alike(&b->memOp, &a->memOp)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return allocates_alike(&b->alloc, &a->alloc) ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                     : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default:
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

/* Forgets partners, and says by `place` how many nodes depend on each. */
static void unpair(struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++) {
        graph->nodes[i]->partner = NULL;
        graph->nodes[i]->place = 0;
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (size_t j = 0; j < graph->nodes[i]->dependencies.count; j++)
            graph->nodes[i]->dependencies.items[j].from->place++;
}

/* Place of the next exit, a node on which none depends. */
static size_t exit_from(const struct sim_graph *graph, size_t i) {
    while (i < graph->node_count && graph->nodes[i]->place)
        i++;
    return i;
}

static bool pair(struct sim_node *before, struct sim_node *after, struct sim_node **stack, size_t *depth) {
    if (before->partner || after->partner)
        return before->partner == after;
    before->partner = after;
    after->partner = before;
    stack[(*depth)++] = after;
    return true;
}

static bool pair_dependencies(const struct sim_node *node, struct sim_node **stack, size_t *depth,
                              CUgraphExecUpdateResultInfo *info) {
    const struct sim_links *b = &node->partner->dependencies, *a = &node->dependencies;
    info->errorNode = SIM_POINTER(CUgraphNode, node);
    if (b->count != a->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!pair(b->items[i].from, a->items[i].from, stack, depth) ||
            memcmp(&b->items[i].data, &a->items[i].data, sizeof a->items[i].data) != 0) {
            info->errorFromNode = SIM_POINTER(CUgraphNode, a->items[i].from);
            return false;
        }
    return true;
}

/* As CUDA pairs nodes: exits in the order in which they were added, and from there the dependencies of each
 * pair in theirs. `stack` has room for all. */
static bool pair_all(struct sim_graph *before, struct sim_graph *after, struct sim_node **stack,
                     CUgraphExecUpdateResultInfo *info) {
    size_t depth = 0, b, a;
    if (before->node_count != after->node_count)
        return false;
    unpair(before);
    unpair(after);
    for (b = exit_from(before, 0), a = exit_from(after, 0); b < before->node_count && a < after->node_count;
         b = exit_from(before, b + 1), a = exit_from(after, a + 1))
        pair(before->nodes[b], after->nodes[a], stack, &depth);
    if (a < after->node_count) {
        info->errorNode = SIM_POINTER(CUgraphNode, after->nodes[a]);
        return false;
    }
    /* Fewer exits: one of as many nodes has another number of dependencies, which is what is told. */
    bool fewer = b < before->node_count;
    while (depth)
        if (!pair_dependencies(stack[--depth], stack, &depth, info))
            return false;
    return !fewer;
}

static CUgraphExecUpdateResult compare_graphs(struct sim_graph *before, struct sim_graph *after,
                                              CUgraphExecUpdateResultInfo *info) {
    struct sim_node **stack = calloc(after->node_count + 1, sizeof(struct sim_node *));
    if (!stack)
        return CU_GRAPH_EXEC_UPDATE_ERROR;
    bool paired = pair_all(before, after, stack, info);
    free(stack);
    if (!paired)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < after->node_count; i++) {
        const struct sim_node *node = after->nodes[i];
        info->errorNode = SIM_POINTER(CUgraphNode, node);
        CUgraphExecUpdateResult result = compare(node->partner, node);
        if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS && node->partner->body_count != node->body_count)
            result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        for (unsigned j = 0; result == CU_GRAPH_EXEC_UPDATE_SUCCESS && j < node->body_count; j++)
            result = compare_graphs(node->partner->bodies[j], node->bodies[j], info);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return result;
    }
    info->errorNode = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* After they were compared. The plan refers to the nodes themselves, so they stay and change what they do. */
static CUresult take_over(struct sim_exec *exec, struct sim_graph *before, const struct sim_graph *after) {
    SIM_TRY(sim_exec_take_holds(exec, before, after));
    for (size_t i = 0; i < after->node_count; i++) {
        struct sim_node *node = after->nodes[i]->partner;
        if (!node->body_count)
            SIM_TRY(sim_node_copy(node, after->nodes[i]));
        for (unsigned j = 0; j < node->body_count; j++)
            SIM_TRY(take_over(exec, node->bodies[j], after->nodes[i]->bodies[j]));
    }
    return CUDA_SUCCESS;
}

static int priority_of(const struct sim_node *node) {
    const CUlaunchAttribute *attribute = attribute_of(node, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    return attribute ? attribute->value.priority : 0;
}

/* The first node of another priority than the one whose place it takes. */
static const struct sim_node *of_other_priority(const struct sim_graph *after) {
    const struct sim_node *found = NULL;
    for (size_t i = 0; !found && i < after->node_count; i++) {
        const struct sim_node *node = after->nodes[i];
        found = priority_of(node) != priority_of(node->partner) ? node : NULL;
        for (unsigned j = 0; !found && j < node->body_count; j++)
            found = of_other_priority(node->bodies[j]);
    }
    return found;
}

/* A graph that runs by its nodes' priorities keeps them. */
static void compare_priorities(const struct sim_exec *exec, const struct sim_graph *after,
                               CUgraphExecUpdateResultInfo *info) {
    bool kept = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    const struct sim_node *other =
        kept && info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? of_other_priority(after) : NULL;
    if (other) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        info->errorNode = SIM_POINTER(CUgraphNode, other);
    }
}

static CUresult update(struct sim_exec *exec, struct sim_graph *graph, CUgraphExecUpdateResultInfo *info) {
    info->result = compare_graphs(exec->graph, graph, info);
    compare_priorities(exec, graph, info);
    /* memory, and a value, belong to one executable graph */
    bool single = exec->has_conditions || exec->has_memory;
    if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS && single && graph->instances &&
        exec->source != graph->object.handle)
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    SIM_TRY(sim_exec_check_named(graph));
    info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    /* bodies are read while they run, so those of launches that are under way stay as they are */
    return single ? sim_exec_remake(exec, graph) : take_over(exec, exec->graph, graph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info) {
    struct sim_exec *exec;
    SIM_REQUIRE(info);
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    SIM_TRY(sim_exec_acquire(handle, &exec));
    pthread_mutex_lock(&exec->lock);
    sim_graphs_lock();
    struct sim_graph *graph = sim_graph_find(graph_handle);
    bool is_whole = graph && !graph->parent && !graph->capture;
    CUresult result = is_whole ? update(exec, graph, info) : CUDA_ERROR_INVALID_VALUE;
    sim_graphs_unlock();
    pthread_mutex_unlock(&exec->lock);
    sim_release(exec);
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *why) {
    CUgraphExecUpdateResultInfo info;
    SIM_REQUIRE(why);
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    if (error_node)
        *error_node = info.errorNode;
    *why = info.result;
    return result;
}

/* The node of an executable graph that was made from the program's; that one must still be there. */
static struct sim_node *node_of(struct sim_exec *exec, CUgraphNode handle) {
    struct sim_node *node = sim_node_find(handle);
    return node ? sim_graph_clone_of(exec->graph, node->object.handle) : NULL;
}

static CUresult set_child(struct sim_exec *exec, struct sim_node *node, CUgraph handle) {
    CUgraphExecUpdateResultInfo info;
    struct sim_graph *child = sim_graph_find(handle);
    SIM_REQUIRE(child);
    if (sim_graph_has_memory(child)) /* it cannot be copied */
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(compare_graphs(node->bodies[0], child, &info) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    return take_over(exec, node->bodies[0], child);
}

static bool is_multidimensional(const CUgraphNodeParams *params) {
    const CUDA_MEMCPY3D *copy = &params->memcpy.copyParams;
    return params->type == CU_GRAPH_NODE_TYPE_MEMCPY && (copy->Height > 1 || copy->Depth > 1);
}

static CUresult set(struct sim_exec *exec, struct sim_node *node, const struct sim_node_work *work) {
    const CUgraphNodeParams *params = &work->params;
    SIM_REQUIRE(node && node->params.type == params->type);
    SIM_REQUIRE(params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL && /* what it decides by stays, and owns */
                params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && params->type != CU_GRAPH_NODE_TYPE_MEM_FREE);
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return set_child(exec, node, params->graph.graph);
    /* as cooperative as before: it keeps its attributes */
    struct sim_node after = {.params = *params,
                             .context = work->function ? work->function->module->context : node->context,
                             .attributes = node->attributes,
                             .attribute_count = node->attribute_count};
    SIM_REQUIRE(compare(node, &after) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    /* an update by a graph may bring those */
    SIM_REQUIRE(!is_multidimensional(&node->params) && !is_multidimensional(params));
    return sim_node_assign_kept(node, work);
}

static CUresult check_node(struct sim_exec *exec, CUgraphNode handle) {
    SIM_GRAPHS_LOCKED();
    return node_of(exec, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_set(CUgraphExec handle, CUgraphNode node, const CUgraphNodeParams *params) {
    struct sim_node_work work = {.params = *params};
    struct sim_exec *exec;
    SIM_TRY(sim_exec_acquire(handle, &exec));
    CUresult result = check_node(exec, node);
    result = result == CUDA_SUCCESS ? sim_node_work_begin(&work) : result;
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&exec->lock);
        sim_graphs_lock();
        result = set(exec, node_of(exec, node), &work);
        sim_graphs_unlock();
        pthread_mutex_unlock(&exec->lock);
        sim_node_work_end(&work);
    }
    sim_release(exec);
    return result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    SIM_REQUIRE(params);
    return exec_set(exec, node, params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    const CUgraphNodeParams params = sim_kernel_params(p);
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    SIM_REQUIRE(p);
    const CUgraphNodeParams params = sim_kernel_params_v1(p);
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p,
                                        CUcontext context) {
    SIM_REQUIRE(p);
    const CUgraphNodeParams params = sim_copy_params(p, context);
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p,
                                        CUcontext context) {
    SIM_REQUIRE(p);
    const CUgraphNodeParams params = sim_memset_params(p, context);
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    const CUgraphNodeParams params = sim_host_params(p);
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                      .eventRecord = {.event = event}};
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
    SIM_REQUIRE(p);
    const CUgraphNodeParams params = sim_batch_params(p);
    return exec_set(exec, node, &params);
}

/* `set_to` NULL: only asks. */
static CUresult enabled(CUgraphExec handle, CUgraphNode node_handle, const unsigned *set_to, unsigned *is) {
    struct sim_exec *exec;
    SIM_TRY(sim_exec_acquire(handle, &exec));
    pthread_mutex_lock(&exec->lock);
    sim_graphs_lock();
    struct sim_node *node = node_of(exec, node_handle);
    bool can = node && node->params.type <= CU_GRAPH_NODE_TYPE_MEMSET; /* kernels, copies and fills */
    if (can && set_to)
        node->disabled = !*set_to;
    if (can && is)
        *is = !node->disabled;
    sim_graphs_unlock();
    pthread_mutex_unlock(&exec->lock);
    sim_release(exec);
    return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int is_enabled) {
    return enabled(exec, node, &is_enabled, NULL);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *is_enabled) {
    SIM_REQUIRE(is_enabled);
    return enabled(exec, node, NULL, is_enabled);
}
