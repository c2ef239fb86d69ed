/* What a node does: checked by making its operation, kept with all that the parameters point to. */
#include "card.h"
#include "event.h"
#include "graph.h"
#include <stdlib.h>
#include <string.h>

static CUresult context_or(CUcontext handle, struct sim_context *otherwise, struct sim_context **out) {
    if (!handle && otherwise) {
        *out = otherwise;
        return sim_context_check(otherwise);
    }
    if (!handle)
        return sim_context_current(out);
    *out = sim_context_of(handle);
    if (!*out)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_context_check(*out);
}

/* A kernel's parameters are kept as their number, pointers to their values, the values, and where each lies,
 * for the program is given the pointers and may change them. */
static void point_at_values(struct sim_node *node) {
    uint8_t *storage = node->storage;
    size_t count = *(const size_t *)storage;
    void **pointers = (void **)(storage + sizeof count);
    const uint32_t *places = (const uint32_t *)(storage + node->storage_bytes) - count;
    for (size_t i = 0; i < count; i++)
        pointers[i] = storage + places[i];
    node->params.kernel.kernelParams = count ? pointers : NULL;
    node->params.kernel.extra = NULL;
}

static CUresult keep_params(struct sim_node *node, const struct sim_kernel_info *info,
                            const struct sim_node_work *work) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    size_t count = info->param_count, values = sizeof count + count * sizeof(void *);
    size_t places = (values + info->param_bytes + 3) / 4 * 4;
    node->storage_bytes = places + count * sizeof(uint32_t);
    uint8_t *storage = calloc(1, node->storage_bytes);
    if (!storage)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint8_t *packed = storage + values;
    CUresult result = CUDA_SUCCESS;
    if (work->packed_params)
        memcpy(packed, work->packed_params, info->param_bytes);
    else
        result = sim_launch_params(packed, info, kernel->kernelParams, kernel->extra);
    if (result != CUDA_SUCCESS) {
        free(storage);
        return result;
    }
    *(size_t *)storage = count;
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)(storage + places))[i] = (uint32_t)(values + info->params[i].offset);
    node->storage = storage;
    point_at_values(node);
    return CUDA_SUCCESS;
}

static CUresult keep_attributes(struct sim_node *node, const struct sim_node_work *work) {
    if (!work->attribute_count)
        return CUDA_SUCCESS;
    size_t bytes = work->attribute_count * sizeof *work->attributes;
    node->attributes = malloc(bytes);
    if (!node->attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(node->attributes, work->attributes, bytes);
    node->attribute_count = work->attribute_count;
    return CUDA_SUCCESS;
}

static CUresult keep_kernel(struct sim_node *node, const struct sim_node_work *work) {
    SIM_REQUIRE(work->function);
    node->function = SIM_POINTER(CUfunction, work->function);
    node->context = work->function->module->context;
    SIM_TRY(keep_params(node, work->function->info, work));
    return keep_attributes(node, work);
}

CUresult sim_node_work_begin(struct sim_node_work *work) {
    const CUgraphNodeParams *params = &work->params;
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
    SIM_REQUIRE(!(params->reserved0[0] | params->reserved0[1] | params->reserved0[2] | params->reserved2));
    if (params->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_SUCCESS;
    if (kernel->func)
        return sim_function_acquire(kernel->func, &work->function);
    struct sim_context *context; /* a library's kernel works where the node says */
    SIM_TRY(context_or(kernel->ctx, NULL, &context));
    return sim_function_acquire_in(context, (CUfunction)kernel->kern, &work->function);
}

void sim_node_work_end(struct sim_node_work *work) {
    if (work->function)
        sim_release(work->function);
}

/* Copies an array that the parameters point to; their pointer is then to the copy. */
static CUresult keep_array(struct sim_node *node, const void **array, size_t bytes) {
    node->storage_bytes = bytes;
    node->storage = malloc(bytes + 1);
    if (!node->storage)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes)
        memcpy(node->storage, *array, bytes);
    *array = node->storage;
    return CUDA_SUCCESS;
}

static CUresult keep_event(struct sim_node *node, CUevent event) {
    SIM_REQUIRE(event);
    CUresult result = sim_event_context(event, &node->context);
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult sim_node_keep(struct sim_node *node, const struct sim_node_work *work) {
    CUgraphNodeParams *p = &node->params;
    *p = work->params;
    node->context = work->context;
    switch ((int)p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return keep_kernel(node, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return context_or(p->memcpy.copyCtx, work->context, &node->context);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return context_or(p->memset.ctx, work->context, &node->context);
    case CU_GRAPH_NODE_TYPE_HOST:
        return p->host.ctx ? context_or(p->host.ctx, NULL, &node->context) : CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        SIM_REQUIRE(p->memOp.paramArray && p->memOp.count);
        SIM_TRY(context_or(p->memOp.ctx, work->context, &node->context));
        SIM_REQUIRE(p->memOp.count <= SIM_BATCH_MOST);
        return keep_array(node, (const void **)&p->memOp.paramArray,
                          p->memOp.count * sizeof *p->memOp.paramArray);
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return keep_event(node, p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return keep_event(node, p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        SIM_REQUIRE(p->alloc.accessDescs || !p->alloc.accessDescCount);
        return keep_array(node, (const void **)&p->alloc.accessDescs,
                          p->alloc.accessDescCount * sizeof *p->alloc.accessDescs);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEMCPY_BATCH:
    case CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_graph_check_contexts(const struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        if (node->context && !node->disabled) {
            if (atomic_load(&node->context->ends) != node->context_ends)
                return CUDA_ERROR_CONTEXT_IS_DESTROYED;
            SIM_TRY(sim_context_check(node->context));
        }
        for (unsigned j = 0; j < node->body_count; j++)
            SIM_TRY(sim_graph_check_contexts(node->bodies[j]));
    }
    return CUDA_SUCCESS;
}

/* The storage is another than that which the parameters point into. */
static void move_pointers(struct sim_node *to) {
    CUgraphNodeParams *p = &to->params;
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        point_at_values(to);
    } else if (p->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        p->memOp.paramArray = to->storage;
    } else if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        p->alloc.accessDescs = to->storage;
    }
}

CUresult sim_node_copy_work(struct sim_node *to, const struct sim_node *from) {
    to->params = from->params;
    to->function = from->function;
    to->context = from->context;
    to->context_ends = from->context_ends;
    to->storage_bytes = from->storage_bytes;
    to->storage = malloc(from->storage_bytes + 1);
    to->attributes = malloc((from->attribute_count + 1) * sizeof *to->attributes);
    if (!to->storage || !to->attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (from->storage)
        memcpy(to->storage, from->storage, from->storage_bytes);
    if (from->attributes)
        memcpy(to->attributes, from->attributes, from->attribute_count * sizeof *from->attributes);
    to->attribute_count = from->attribute_count;
    move_pointers(to);
    return CUDA_SUCCESS;
}

void sim_node_keep_place(struct sim_node *fresh, struct sim_node *old) {
    if (fresh->params.type != CU_GRAPH_NODE_TYPE_KERNEL || old->params.type != CU_GRAPH_NODE_TYPE_KERNEL ||
        fresh->function != old->function || fresh->storage_bytes != old->storage_bytes)
        return;
    memcpy(old->storage, fresh->storage, fresh->storage_bytes);
    free(fresh->storage);
    fresh->storage = old->storage;
    old->storage = NULL;
    move_pointers(fresh);
}

static CUresult kernel_op(const struct sim_node *node, struct sim_op **op) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &node->params.kernel;
    struct sim_function *function;
    const CUlaunchConfig config = {k->gridDimX,      k->gridDimY,          k->gridDimZ,       k->blockDimX,
                                   k->blockDimY,     k->blockDimZ,         k->sharedMemBytes, NULL,
                                   node->attributes, node->attribute_count};
    SIM_TRY(sim_function_acquire(node->function, &function));
    CUresult result =
        sim_launch_op(node->context, function, &config, k->kernelParams, NULL, sim_multiprocessors(), op);
    sim_release(function);
    return result;
}

CUresult sim_node_op(const struct sim_node *node, struct sim_op **op) {
    *op = NULL;
    switch ((int)node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_op(node, op);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_copy_op(&node->params.memcpy.copyParams, op);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sim_memset_op(&node->params.memset, op);
    case CU_GRAPH_NODE_TYPE_HOST:
        return sim_host_op(&node->params.host, op);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return sim_batch_op(&node->params.memOp, op);
    default:
        return CUDA_SUCCESS;
    }
}
