/* What a node does: checked by making its operation, kept with all that the parameters point to. */
#include "conditional.h"
#include "event.h"
#include "graph.h"
#include "graph_memory.h"
#include <stdlib.h>
#include <string.h>

static CUresult context_or(CUcontext handle, struct sim_context *otherwise, struct sim_context **out) {
    if (!handle && otherwise) {
        *out = otherwise;
        return CUDA_SUCCESS;
    }
    if (!handle)
        return sim_context_current(out);
    *out = sim_context_of(handle);
    if (!*out)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_context_check(*out);
}

/* Keeps a kernel's parameters: an array of pointers, then what they point to. */
static CUresult keep_params(struct sim_node *node, const struct sim_kernel_info *info,
                            const struct sim_node_work *work) {
    CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    size_t pointers = info->param_count * sizeof(void *);
    node->storage_bytes = pointers + info->param_bytes;
    uint8_t *storage = calloc(1, node->storage_bytes + 1);
    if (!storage)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint8_t *packed = storage + pointers;
    CUresult result = CUDA_SUCCESS;
    if (work->packed_params)
        memcpy(packed, work->packed_params, info->param_bytes);
    else
        result = sim_launch_params(packed, info, kernel->kernelParams, kernel->extra);
    if (result != CUDA_SUCCESS) {
        free(storage);
        return result;
    }
    kernel->kernelParams = info->param_count ? (void **)storage : NULL;
    kernel->extra = NULL;
    for (uint32_t i = 0; i < info->param_count; i++)
        kernel->kernelParams[i] = packed + info->params[i].offset;
    node->storage = storage;
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
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &work->params.kernel;
    struct sim_function *function;
    CUfunction handle = kernel->func ? kernel->func : (CUfunction)kernel->kern;
    SIM_REQUIRE(handle);
    SIM_TRY(sim_function_acquire(handle, &function));
    node->function = SIM_POINTER(CUfunction, function);
    node->context = function->module->context;
    CUresult result = keep_params(node, function->info, work);
    if (result == CUDA_SUCCESS)
        result = keep_attributes(node, work);
    sim_release(function);
    return result;
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

CUresult sim_node_keep_bodies(struct sim_node *node, struct sim_graph **bodies, unsigned count) {
    struct sim_graph **kept = calloc(count + 1, sizeof(struct sim_graph *));
    CUgraph *handles = calloc(count + 1, sizeof *handles);
    if (!kept || !handles) {
        free(kept);
        free(handles);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < count; i++) {
        kept[i] = bodies[i];
        handles[i] = SIM_POINTER(CUgraph, bodies[i]);
    }
    node->bodies = kept;
    node->body_handles = handles;
    node->body_count = count;
    return CUDA_SUCCESS;
}

static CUresult keep_child(struct sim_node *node) {
    CUDA_CHILD_GRAPH_NODE_PARAMS *child = &node->params.graph;
    struct sim_graph *graph = sim_graph_find(child->graph), *body;
    SIM_REQUIRE(graph && graph != node->graph);
    for (struct sim_node *parent = node->graph->parent; parent; parent = parent->graph->parent)
        SIM_REQUIRE(parent->graph != graph);
    if (sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (child->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        SIM_REQUIRE(!graph->parent && !graph->capture);
        body = graph;
        body->parent = node;
    } else {
        SIM_REQUIRE(child->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
        if (sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
            sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_MEM_FREE))
            return CUDA_ERROR_NOT_SUPPORTED;
        SIM_TRY(sim_graph_clone(graph, node, &body));
    }
    return sim_node_keep_bodies(node, &body, 1);
}

static CUresult keep_event(struct sim_node *node, CUevent event) {
    SIM_REQUIRE(event);
    return sim_event_context(event, &node->context) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Fills the node from `work`; what it holds on an error is cleared by the caller. */
static CUresult keep(struct sim_node *node, const struct sim_node_work *work) {
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
        return keep_array(node, (const void **)&p->memOp.paramArray,
                          p->memOp.count * sizeof *p->memOp.paramArray);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return keep_child(node);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return keep_event(node, p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return keep_event(node, p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        SIM_REQUIRE(p->alloc.accessDescs || !p->alloc.accessDescCount);
        SIM_TRY(keep_array(node, (const void **)&p->alloc.accessDescs,
                           p->alloc.accessDescCount * sizeof *p->alloc.accessDescs));
        return sim_graph_memory_keep(node);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_graph_memory_keep(node);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_conditional_keep(node);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEMCPY_BATCH:
    case CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

void sim_node_clear(struct sim_node *node) {
    sim_graph_memory_clear(node);
    sim_conditional_clear(node);
    for (unsigned i = 0; i < node->body_count; i++)
        sim_graph_free(node->bodies[i]);
    free(node->bodies);
    free(node->body_handles);
    free(node->storage);
    free(node->attributes);
}

/* What `from` does, `to` does from now on. The rest of `to` stays as it is. */
static void move_work(struct sim_node *to, const struct sim_node *from) {
    to->params = from->params;
    to->storage = from->storage;
    to->storage_bytes = from->storage_bytes;
    to->attributes = from->attributes;
    to->attribute_count = from->attribute_count;
    to->function = from->function;
    to->context = from->context;
    to->bodies = from->bodies;
    to->body_handles = from->body_handles;
    to->body_count = from->body_count;
    to->memory = from->memory;
    to->condition = from->condition;
    to->body_plans = from->body_plans;
    for (unsigned i = 0; i < to->body_count; i++)
        to->bodies[i]->parent = to;
    if (to->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
        to->params.graph =
            (CUDA_CHILD_GRAPH_NODE_PARAMS){to->body_handles[0], CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID};
    if (to->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        to->params.conditional.phGraph_out = to->body_handles;
}

CUresult sim_node_assign(struct sim_node *node, const struct sim_node_work *work) {
    struct sim_node fresh = {.object = node->object, .graph = node->graph, .id = node->id};
    struct sim_op *op = NULL;
    CUresult result = keep(&fresh, work);
    if (result == CUDA_SUCCESS)
        result = sim_node_op(&fresh, &op);
    if (op)
        sim_op_discard(op);
    if (result != CUDA_SUCCESS) {
        sim_node_clear(&fresh);
        return result;
    }
    sim_node_clear(node);
    move_work(node, &fresh);
    return CUDA_SUCCESS;
}

CUresult sim_node_assign_kept(struct sim_node *node, const struct sim_node_work *work) {
    struct sim_node_work kept = *work;
    kept.context = node->context;
    kept.attributes = node->attributes;
    kept.attribute_count = node->attribute_count;
    return sim_node_assign(node, &kept);
}

/* A pointer into the storage of a node that was copied. */
static void *moved(const void *pointer, const struct sim_node *from, const struct sim_node *to) {
    return pointer ? (uint8_t *)to->storage + ((const uint8_t *)pointer - (const uint8_t *)from->storage)
                   : NULL;
}

static void move_pointers(struct sim_node *to, const struct sim_node *from) {
    CUgraphNodeParams *p = &to->params;
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL && p->kernel.kernelParams) {
        p->kernel.kernelParams = to->storage;
        /* the first of the pointers' targets ends the array */
        for (void **each = to->storage;
             (uint8_t *)each < (uint8_t *)moved(from->params.kernel.kernelParams[0], from, to); each++)
            *each = moved(*each, from, to);
    } else if (p->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        p->memOp.paramArray = to->storage;
    } else if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        p->alloc.accessDescs = to->storage;
    }
}

static CUresult copy_bodies(struct sim_node *to, const struct sim_node *from) {
    struct sim_graph *bodies[from->body_count + 1];
    for (unsigned i = 0; i < from->body_count; i++) {
        CUresult result = sim_graph_clone(from->bodies[i], to, &bodies[i]);
        if (result != CUDA_SUCCESS) {
            while (i--)
                sim_graph_free(bodies[i]);
            return result;
        }
    }
    return from->body_count ? sim_node_keep_bodies(to, bodies, from->body_count) : CUDA_SUCCESS;
}

CUresult sim_node_copy(struct sim_node *to, const struct sim_node *from) {
    struct sim_node fresh = {.object = to->object, .graph = to->graph, .id = to->id};
    fresh.params = from->params;
    fresh.function = from->function;
    fresh.context = from->context;
    fresh.storage_bytes = from->storage_bytes;
    fresh.storage = malloc(from->storage_bytes + 1);
    fresh.attributes = malloc((from->attribute_count + 1) * sizeof *fresh.attributes);
    CUresult result = fresh.storage && fresh.attributes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        if (from->storage)
            memcpy(fresh.storage, from->storage, from->storage_bytes);
        if (from->attributes)
            memcpy(fresh.attributes, from->attributes, from->attribute_count * sizeof *from->attributes);
        fresh.attribute_count = from->attribute_count;
        move_pointers(&fresh, from);
        result = copy_bodies(&fresh, from);
    }
    sim_graph_memory_share(&fresh, from);
    sim_conditional_share(&fresh, from);
    if (result != CUDA_SUCCESS) {
        sim_node_clear(&fresh);
        return result;
    }
    sim_node_clear(to);
    move_work(to, &fresh);
    return CUDA_SUCCESS;
}

static CUresult kernel_op(const struct sim_node *node, struct sim_op **op) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &node->params.kernel;
    struct sim_function *function;
    const CUlaunchConfig config = {k->gridDimX,      k->gridDimY,          k->gridDimZ,       k->blockDimX,
                                   k->blockDimY,     k->blockDimZ,         k->sharedMemBytes, NULL,
                                   node->attributes, node->attribute_count};
    SIM_TRY(sim_function_acquire(node->function, &function));
    CUresult result = sim_launch_op(node->context, function, &config, k->kernelParams, NULL, op);
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
