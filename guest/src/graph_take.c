/* What a node may hold, by kind: what CUDA refuses when it is given, and what its parameters point to,
 * copied. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "copy.h"
#include "graph.h"
#include "launch.h"
#include "module.h"
#include "objects.h"
#include "word.h"

/* The context in which a node works must be there and sound; 0 is the current one, if there is any. */
static CUresult in_context(struct gf_node *node, uint64_t handle) {
    struct gf_context *context;
    uint64_t wire;
    if (handle == 0 && gf_context_current_handle() == 0) {
        return CUDA_SUCCESS;
    }
    CUresult result = gf_context_look_up((CUcontext)handle, &context, &wire);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    node->context = wire;
    node->context_ends = atomic_load(&context->ends);
    return gf_context_usable(context);
}

static CUresult still_there(uint64_t handle, uint32_t ends) {
    const struct gf_context *context = gf_context_find((CUcontext)handle);
    bool same = context != NULL && atomic_load(&context->ends) == ends;
    return same ? gf_context_usable(context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Of a node that has one already it stays, unless another one is named; one that ended and is there again
 * will do. */
static CUresult in_context_or_kept(struct gf_node *node, CUcontext named) {
    if (named != NULL || node->context == 0) {
        return in_context(node, (uint64_t)named);
    }
    const struct gf_context *context = gf_context_find((CUcontext)node->context);
    if (context == NULL) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    node->context_ends = atomic_load(&context->ends);
    return gf_context_usable(context);
}

CUresult gf_model_check_contexts(const struct gf_model *model) {
    CUresult result = CUDA_SUCCESS;
    for (const struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        if (n->context != 0 && !n->disabled) {
            result = still_there(n->context, n->context_ends);
        }
        for (unsigned i = 0; i < n->body_count && result == CUDA_SUCCESS; i++) {
            result = gf_model_check_contexts(n->bodies[i]);
        }
    }
    return result;
}

CUevent gf_node_event(const struct gf_node *node) {
    return node->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? node->params.eventRecord.event
           : node->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? node->params.eventWait.event
                                                                : NULL;
}

CUresult gf_node_check_named(const struct gf_node *node) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    CUevent event = gf_node_event(node);
    bool is = event == NULL || gf_event_find(event) != NULL;
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        is = gf_callable_find(kernel->func != NULL ? (uint64_t)kernel->func : (uint64_t)kernel->kern) != NULL;
    }
    return is ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult gf_model_check_named(const struct gf_model *model) {
    CUresult result = CUDA_SUCCESS;
    for (const struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        result = n->disabled ? CUDA_SUCCESS : gf_node_check_named(n);
        for (unsigned i = 0; i < n->body_count && result == CUDA_SUCCESS; i++) {
            result = gf_model_check_named(n->bodies[i]);
        }
    }
    return result;
}

/* Kernels: the parameters' values, packed, and pointers to them for whoever asks. */

static CUresult take_kernel(struct gf_node *node) {
    CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    uint64_t handle = kernel->func != NULL ? (uint64_t)kernel->func : (uint64_t)kernel->kern;
    struct gf_callable *callable = gf_callable_find(handle);
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUlaunchConfig config = {.gridDimX = kernel->gridDimX,
                             .gridDimY = kernel->gridDimY,
                             .gridDimZ = kernel->gridDimZ,
                             .blockDimX = kernel->blockDimX,
                             .blockDimY = kernel->blockDimY,
                             .blockDimZ = kernel->blockDimZ,
                             .sharedMemBytes = kernel->sharedMemBytes,
                             .attrs = node->attributes,
                             .numAttrs = node->attribute_count};
    const struct gf_kernel_info *info = callable->info;
    bool anywhere = kernel->func == NULL && callable->context == 0; /* a library's: where the node says */
    CUresult result = in_context(node, anywhere ? (uint64_t)kernel->ctx : callable->context);
    result = result == CUDA_SUCCESS ? gf_launch_check_in(node->context, &config, callable) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t room = ((size_t)info->param_bytes + 15) / 16 * 16;
    char *memory = calloc(1, room + (info->param_count + 1) * sizeof(void *));
    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = gf_launch_pack(info, kernel->kernelParams, kernel->extra, memory);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    void **pointers = (void **)(memory + room);
    for (uint32_t i = 0; i < info->param_count; i++) {
        pointers[i] = memory + info->params[i].offset;
    }
    kernel->kernelParams = pointers;
    kernel->extra = NULL;
    node->memory = memory;
    gf_callable_is_loaded(callable);
    node->memory_size = (uint32_t)(room + info->param_count * sizeof(void *));
    node->value_bytes = info->param_bytes;
    return CUDA_SUCCESS;
}

CUresult gf_params_check_context(const CUgraphNodeParams *params) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
    const struct gf_callable *function = params->type == CU_GRAPH_NODE_TYPE_KERNEL && kernel->ctx != NULL
                                             ? gf_function_find(kernel->func)
                                             : NULL;
    struct gf_context *context;
    uint64_t wire;
    return function == NULL || (gf_context_look_up(kernel->ctx, &context, &wire) == CUDA_SUCCESS &&
                                wire == function->context)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_CONTEXT;
}

/* Copies and fills: what CUDA refuses when they are added. */

static CUresult take_memcpy(struct gf_node *node) {
    const CUDA_MEMCPY3D *copy = &node->params.memcpy.copyParams;
    CUresult result = in_context_or_kept(node, node->params.memcpy.copyCtx);
    if (result == CUDA_SUCCESS && (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0 ||
                                   copy->srcLOD != 0 || copy->dstLOD != 0)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS ? gf_copy_check(copy) : result;
}

static CUresult take_memset(struct gf_node *node) {
    const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &node->params.memset;
    bool sized = fill->width != 0 && fill->height != 0 &&
                 (fill->elementSize == 1 || fill->elementSize == 2 || fill->elementSize == 4);
    CUresult result = in_context_or_kept(node, fill->ctx);
    result = result == CUDA_SUCCESS && !sized ? CUDA_ERROR_INVALID_VALUE : result;
    return result != CUDA_SUCCESS
               ? result
               : gf_fill_node_check(fill->dst, fill->pitch, fill->elementSize, fill->width, fill->height);
}

static CUresult take_event(struct gf_node *node) {
    CUevent event = node->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? node->params.eventRecord.event
                                                                         : node->params.eventWait.event;
    const struct gf_event *found = gf_event_find(event);
    return found == NULL ? CUDA_ERROR_INVALID_VALUE : in_context(node, found->object.owner);
}

static CUresult take_host(struct gf_node *node) {
    CUcontext named = node->params.host.ctx;
    return node->params.host.fn == NULL ? CUDA_ERROR_INVALID_VALUE
           : named == NULL              ? CUDA_SUCCESS
                                        : in_context(node, (uint64_t)named);
}

static CUresult take_batch(struct gf_node *node) {
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *batch = &node->params.memOp;
    CUresult refused = batch->paramArray == NULL ? CUDA_SUCCESS : in_context_or_kept(node, batch->ctx);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (batch->paramArray == NULL || batch->count == 0 || batch->count > GF_BATCH_MAX || batch->flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < batch->count; i++) {
        CUresult result = gf_word_check(&batch->paramArray[i]);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        gf_word_note(batch->paramArray[i].operation);
    }
    node->memory_size = node->value_bytes = batch->count * (uint32_t)sizeof *batch->paramArray;
    if ((node->memory = malloc(node->memory_size)) == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(node->memory, batch->paramArray, node->memory_size);
    batch->paramArray = node->memory;
    return CUDA_SUCCESS;
}

static CUresult take_empty(struct gf_node *node) {
    (void)node;
    return CUDA_SUCCESS;
}

/* By CUgraphNodeType; what is not here, and holds no graphs, is not carried. */
static CUresult (*const take[])(struct gf_node *node) = {
    [CU_GRAPH_NODE_TYPE_KERNEL] = take_kernel,
    [CU_GRAPH_NODE_TYPE_MEMCPY] = take_memcpy,
    [CU_GRAPH_NODE_TYPE_MEMSET] = take_memset,
    [CU_GRAPH_NODE_TYPE_HOST] = take_host,
    [CU_GRAPH_NODE_TYPE_EMPTY] = take_empty,
    [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = take_event,
    [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = take_event,
    [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = gf_graph_memory_take,
    [CU_GRAPH_NODE_TYPE_MEM_FREE] = gf_graph_memory_take,
    [CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = take_batch,
};

CUresult gf_params_take(struct gf_node *node) {
    unsigned type = (unsigned)node->params.type;
    if (type > CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return type < sizeof take / sizeof *take && take[type] != NULL ? take[type](node)
                                                                   : CUDA_ERROR_NOT_SUPPORTED;
}
