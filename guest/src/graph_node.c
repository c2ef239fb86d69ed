/* What nodes hold, by kind: parameters are copied when they are given, as CUDA does. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "graph.h"
#include "host_memory.h"
#include "launch.h"
#include "module.h"
#include "objects.h"

#define PART(type_, member)                                                                                  \
    {type_, offsetof(CUgraphNodeParams, member), sizeof(((CUgraphNodeParams *)0)->member)}

/* Where in CUgraphNodeParams lies what a function gives or takes. */
static const struct {
    CUgraphNodeType type;
    size_t offset, size;
} forms[] = {
    [GF_FORM_KERNEL_V1] = {CU_GRAPH_NODE_TYPE_KERNEL, offsetof(CUgraphNodeParams, kernel),
                           sizeof(CUDA_KERNEL_NODE_PARAMS_v1)},
    [GF_FORM_KERNEL] = PART(CU_GRAPH_NODE_TYPE_KERNEL, kernel),
    [GF_FORM_MEMCPY] = PART(CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams),
    [GF_FORM_MEMSET] = {CU_GRAPH_NODE_TYPE_MEMSET, offsetof(CUgraphNodeParams, memset),
                        sizeof(CUDA_MEMSET_NODE_PARAMS_v1)},
    [GF_FORM_HOST] = {CU_GRAPH_NODE_TYPE_HOST, offsetof(CUgraphNodeParams, host),
                      sizeof(CUDA_HOST_NODE_PARAMS_v1)},
    [GF_FORM_CHILD] = PART(CU_GRAPH_NODE_TYPE_GRAPH, graph.graph),
    [GF_FORM_EMPTY] = {CU_GRAPH_NODE_TYPE_EMPTY, offsetof(CUgraphNodeParams, reserved1), 0},
    [GF_FORM_RECORD] = PART(CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord.event),
    [GF_FORM_WAIT] = PART(CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait.event),
    [GF_FORM_ALLOC] = PART(CU_GRAPH_NODE_TYPE_MEM_ALLOC, alloc),
    [GF_FORM_FREE] = PART(CU_GRAPH_NODE_TYPE_MEM_FREE, free.dptr),
};

CUgraphNodeType gf_form_type(enum gf_form form, const void *params) {
    return form == GF_FORM_ANY ? ((const CUgraphNodeParams *)params)->type : forms[form].type;
}

/* Kernels: the parameters' values, packed, and pointers to them for whoever asks. */

static CUresult take_kernel(struct gf_node *node) {
    CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    uint64_t handle = kernel->func != NULL ? (uint64_t)kernel->func : (uint64_t)kernel->kern;
    struct gf_callable *callable = gf_callable_find(handle);
    if (callable == NULL) {
        return handle == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    }
    CUlaunchConfig config = {.gridDimX = kernel->gridDimX,
                             .gridDimY = kernel->gridDimY,
                             .gridDimZ = kernel->gridDimZ,
                             .blockDimX = kernel->blockDimX,
                             .blockDimY = kernel->blockDimY,
                             .blockDimZ = kernel->blockDimZ,
                             .sharedMemBytes = kernel->sharedMemBytes};
    const struct gf_kernel_info *info = callable->info;
    CUresult result = gf_launch_check(&config, callable);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t room = ((size_t)info->param_bytes + 15) / 16 * 16;
    char *memory = calloc(1, room + info->param_count * sizeof(void *) + 1);
    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = gf_launch_pack(info, kernel->kernelParams, kernel->extra, memory);
    result = result == CUDA_SUCCESS ? gf_host_share_params(memory, info->param_bytes) : result;
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
    node->param_bytes = info->param_bytes;
    return CUDA_SUCCESS;
}

/* Copies and fills: what CUDA refuses when they are added. */

static CUresult take_memcpy(struct gf_node *node) {
    const CUDA_MEMCPY3D *copy = &node->params.memcpy.copyParams;
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gf_copy_check(copy);
}

static CUresult take_memset(struct gf_node *node) {
    const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &node->params.memset;
    if (fill->width == 0 || fill->height == 0 ||
        (fill->elementSize != 1 && fill->elementSize != 2 && fill->elementSize != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gf_fill_check(fill->dst, fill->pitch, fill->elementSize, fill->width, fill->height);
}

static CUresult take_child(struct gf_node *node) {
    struct gf_graph *graph = gf_graph_find(node->params.graph.graph);
    if (graph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (node->params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (const struct gf_node *up = node; up != NULL; up = up->model->parent) {
        if (up->model == graph->model) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    node->child = gf_model_copy(graph->model);
    if (node->child == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->child->parent = node;
    return CUDA_SUCCESS;
}

static CUresult take_event(struct gf_node *node) {
    CUevent event = node->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? node->params.eventRecord.event
                                                                         : node->params.eventWait.event;
    return gf_event_find(event) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult take_empty(struct gf_node *node) {
    (void)node;
    return CUDA_SUCCESS;
}

/* By CUgraphNodeType; what is not here is not carried. */
static CUresult (*const take[])(struct gf_node *node) = {
    [CU_GRAPH_NODE_TYPE_KERNEL] = take_kernel,      [CU_GRAPH_NODE_TYPE_MEMCPY] = take_memcpy,
    [CU_GRAPH_NODE_TYPE_MEMSET] = take_memset,      [CU_GRAPH_NODE_TYPE_GRAPH] = take_child,
    [CU_GRAPH_NODE_TYPE_EMPTY] = take_empty,        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = take_event,
    [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = take_event,
};

void gf_params_free(struct gf_node *node) {
    free(node->memory);
    if (node->child != NULL) {
        gf_model_free(node->child);
    }
    node->memory = NULL;
    node->child = NULL;
}

/* What a node holds, exchanged for another's. */
static void give(struct gf_node *to, struct gf_node *from) {
    gf_params_free(to);
    to->params = from->params;
    to->memory = from->memory;
    to->param_bytes = from->param_bytes;
    to->child = from->child;
    if (to->child != NULL) {
        to->child->parent = to;
    }
}

CUresult gf_params_set(struct gf_node *node, enum gf_form form, const void *params) {
    struct gf_node made = {.model = node->model};
    if (form == GF_FORM_MODEL) {
        made.params.type = CU_GRAPH_NODE_TYPE_GRAPH;
        if ((made.child = gf_model_copy(*(struct gf_model *const *)params)) == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        give(node, &made);
        return CUDA_SUCCESS;
    }
    if (form == GF_FORM_ANY) {
        made.params = *(const CUgraphNodeParams *)params;
    } else {
        made.params.type = forms[form].type;
        memcpy((char *)&made.params + forms[form].offset, params, forms[form].size);
    }
    unsigned type = (unsigned)made.params.type;
    if (type > CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type >= sizeof take / sizeof *take || take[type] == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = take[type](&made);
    if (result == CUDA_SUCCESS) {
        give(node, &made);
    }
    return result;
}

CUresult gf_params_copy(struct gf_node *node, const struct gf_node *from) {
    struct gf_node made = {.params = from->params, .param_bytes = from->param_bytes};
    if (from->child != NULL && (made.child = gf_model_copy(from->child)) == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (from->memory != NULL) {
        /* The same values, in memory of its own: pointers to them lie behind them. */
        size_t room = ((size_t)from->param_bytes + 15) / 16 * 16;
        struct gf_callable *callable =
            gf_callable_find(from->params.kernel.func != NULL ? (uint64_t)from->params.kernel.func
                                                              : (uint64_t)from->params.kernel.kern);
        uint32_t count = callable == NULL ? 0 : callable->info->param_count;
        char *memory = calloc(1, room + count * sizeof(void *) + 1);
        if (memory == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(memory, from->memory, from->param_bytes);
        made.memory = memory;
        made.params.kernel.kernelParams = (void **)(memory + room);
        for (uint32_t i = 0; i < count; i++) {
            made.params.kernel.kernelParams[i] = memory + callable->info->params[i].offset;
        }
    }
    give(node, &made);
    return gf_params_attributes(node, from->attributes, from->attribute_count);
}

CUresult gf_params_attributes(struct gf_node *node, const CUlaunchAttribute *attributes, unsigned count) {
    CUlaunchAttribute *copy = count == 0 ? NULL : malloc(count * sizeof *copy);
    if (count > 0 && copy == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (count > 0) {
        memcpy(copy, attributes, count * sizeof *copy);
    }
    free(node->attributes);
    node->attributes = copy;
    node->attribute_count = count;
    return CUDA_SUCCESS;
}

CUresult gf_node_params(const struct gf_node *node, enum gf_form form, void *params) {
    if (form == GF_FORM_ANY) {
        *(CUgraphNodeParams *)params = node->params;
        return CUDA_SUCCESS;
    }
    if (node->params.type != forms[form].type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(params, (const char *)&node->params + forms[form].offset, forms[form].size);
    return CUDA_SUCCESS;
}

static bool is_host(CUmemorytype type, uint64_t address) {
    return type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && !gf_address_is_device(address));
}

bool gf_params_reads_host(const struct gf_node *node) {
    const CUDA_MEMCPY3D *copy = &node->params.memcpy.copyParams;
    return node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && is_host(copy->srcMemoryType, copy->srcDevice);
}

bool gf_params_writes_host(const struct gf_node *node) {
    const CUDA_MEMCPY3D *copy = &node->params.memcpy.copyParams;
    return node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && is_host(copy->dstMemoryType, copy->dstDevice);
}

bool gf_params_equal(const struct gf_node *one, const struct gf_node *other) {
    CUgraphNodeParams a = one->params, b = other->params;
    if (one->memory != NULL || other->memory != NULL) {
        if (one->param_bytes != other->param_bytes ||
            memcmp(one->memory, other->memory, one->param_bytes) != 0) {
            return false;
        }
        a.kernel.kernelParams = b.kernel.kernelParams = NULL;
    }
    return memcmp(&a, &b, sizeof a) == 0;
}

CUgraphExecUpdateResult gf_params_may_replace(const struct gf_node *node, const struct gf_node *by) {
    if (node->params.type != by->params.type) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
    if (gf_params_reads_host(node) != gf_params_reads_host(by) ||
        gf_params_writes_host(node) != gf_params_writes_host(by)) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}
