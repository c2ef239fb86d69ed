/* What nodes hold, by kind: parameters are copied when they are given, as CUDA does. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "driver_interop/launch_attribute.h"
#include "driver_interop/word_update.h"
#include "graph.h"
#include "host_memory.h"
#include "launch.h"
#include "module.h"
#include "objects.h"
#include "vmm.h"
#include "window.h"

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
    [GF_FORM_BATCH] = PART(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp),
};

CUgraphNodeType gf_form_type(enum gf_form form, const void *params) {
    return form == GF_FORM_ANY ? ((const CUgraphNodeParams *)params)->type : forms[form].type;
}

CUgraphNodeParams gf_form_in(enum gf_form form, const void *params, CUcontext context) {
    CUgraphNodeParams whole = {.type = forms[form].type};
    memcpy((char *)&whole + forms[form].offset, params, forms[form].size);
    *(form == GF_FORM_MEMCPY   ? &whole.memcpy.copyCtx
      : form == GF_FORM_MEMSET ? &whole.memset.ctx
                               : &whole.memOp.ctx) = context;
    return whole;
}

/* A graph that was to move here, and did not, is the program's still. */
static void drop_body(const struct gf_node *node, struct gf_model *body) {
    if (node->handle == 0 && body->handle != 0) {
        body->parent = NULL;
    } else {
        gf_model_free(body);
    }
}

void gf_params_free(struct gf_node *node) {
    gf_graph_memory_clear(node);
    free(node->memory);
    for (unsigned i = 0; i < node->body_count; i++) {
        drop_body(node, node->bodies[i]);
    }
    gf_condition_clear(node);
    free(node->bodies);
    free(node->body_handles);
    node->memory = NULL;
    node->bodies = NULL;
    node->body_handles = NULL;
    node->body_count = 0;
}

CUresult gf_node_keep_bodies(struct gf_node *node, struct gf_model **bodies, unsigned count) {
    node->bodies = calloc(count, sizeof(struct gf_model *));
    node->body_handles = calloc(count, sizeof(CUgraph));
    bool all = node->bodies != NULL && node->body_handles != NULL;
    for (unsigned i = 0; i < count; i++) {
        all = all && bodies[i] != NULL;
    }
    for (unsigned i = 0; i < count; i++) {
        if (all) {
            node->bodies[i] = bodies[i];
            bodies[i]->parent = node;
        } else if (bodies[i] != NULL) {
            drop_body(node, bodies[i]);
        }
    }
    node->body_count = all ? count : 0;
    return all ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The pointer in a node's parameters to what it holds; NULL: it holds nothing. */
static void **pointer_of(CUgraphNodeParams *params) {
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return (void **)&params->kernel.kernelParams;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return (void **)&params->memOp.paramArray;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return (void **)&params->alloc.accessDescs;
    default:
        return NULL;
    }
}

/* The memory's content was elsewhere. A kernel's parameters are followed by pointers to them; the program was
 * given those, and may have changed some. */
static void move_pointers(struct gf_node *node, const void *from) {
    uintptr_t before = (uintptr_t)from, moved = (uintptr_t)node->memory - before;
    void **place = pointer_of(&node->params);
    *place = (char *)*place + moved;
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        uintptr_t *end = (uintptr_t *)((char *)node->memory + node->memory_size);
        for (uintptr_t *each = *place; each < end; each++) {
            *each += *each - before < node->memory_size ? moved : 0;
        }
    }
}

/* A kernel's parameters for the same kernel go where those are that they replace: the program was given
 * pointers there, by which it may set them again. */
static void keep_place(struct gf_node *fresh, struct gf_node *old) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *one = &fresh->params.kernel, *other = &old->params.kernel;
    if (fresh->params.type != CU_GRAPH_NODE_TYPE_KERNEL || old->params.type != CU_GRAPH_NODE_TYPE_KERNEL ||
        one->func != other->func || one->kern != other->kern || fresh->memory_size != old->memory_size) {
        return;
    }
    void *made = fresh->memory;
    memcpy(old->memory, made, fresh->memory_size);
    fresh->memory = old->memory;
    old->memory = NULL;
    move_pointers(fresh, made);
    free(made);
}

/* What a node holds, exchanged for another's. */
static void give(struct gf_node *to, struct gf_node *from) {
    keep_place(from, to);
    gf_params_free(to);
    to->params = from->params;
    to->context = from->context;
    to->context_ends = from->context_ends;
    to->memory = from->memory;
    to->memory_size = from->memory_size;
    to->value_bytes = from->value_bytes;
    to->bodies = from->bodies;
    to->body_handles = from->body_handles;
    to->body_count = from->body_count;
    to->conditional = from->conditional;
    to->allocation = from->allocation;
    for (unsigned i = 0; i < to->body_count; i++) {
        to->bodies[i]->parent = to;
    }
}

static CUresult take_child(struct gf_node *node) {
    struct gf_graph *graph = gf_graph_find(node->params.graph.graph);
    bool moves = node->params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (graph == NULL || (!moves && node->params.graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Into a graph that the program has, not into what was made of one. */
    if (moves && (graph->model->parent != NULL || graph->model->captured || node->model->handle == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const struct gf_node *up = node; up != NULL; up = up->model->parent) {
        if (up->model == graph->model) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    /* Memory may move as long as nothing that is executable has it; values belong to their graph. */
    if (gf_model_has(graph->model, CU_GRAPH_NODE_TYPE_CONDITIONAL) || (moves && graph->model->home != NULL) ||
        (gf_model_has_memory(graph->model) && (!moves || graph->model->instances > 0))) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct gf_model *body = moves ? graph->model : gf_model_copy(graph->model);
    return gf_node_keep_bodies(node, &body, 1);
}

static CUresult make_bodies(struct gf_node *node, uint32_t first) {
    unsigned count = node->params.conditional.size;
    struct gf_model **bodies = calloc(count, sizeof(struct gf_model *));
    for (unsigned i = 0; bodies != NULL && i < count; i++) {
        if ((bodies[i] = gf_model_new()) != NULL) {
            bodies[i]->wire_graph = first + i;
        }
    }
    CUresult result = bodies == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_node_keep_bodies(node, bodies, count);
    free(bodies);
    node->params.conditional.phGraph_out = node->body_handles;
    return result;
}

static CUresult take(struct gf_node *node) {
    uint32_t first;
    CUresult result;
    switch ((int)node->params.type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return take_child(node);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        result = gf_condition_take(node, &first);
        return result == CUDA_SUCCESS ? make_bodies(node, first) : result;
    default:
        return gf_params_take(node);
    }
}

/* What later releases may give a meaning. */
static bool reserved_is_zero(const CUgraphNodeParams *params) {
    return (params->reserved0[0] | params->reserved0[1] | params->reserved0[2] | params->reserved2) == 0;
}

CUresult gf_params_set(struct gf_node *node, enum gf_form form, const void *params) {
    struct gf_node made = {.model = node->model,
                           .context = node->context,
                           .context_ends = node->context_ends,
                           .attributes = node->attributes, /* which it keeps */
                           .attribute_count = node->attribute_count};
    if (form == GF_FORM_ANY) {
        made.params = *(const CUgraphNodeParams *)params;
    } else {
        made.params.type = forms[form].type;
        memcpy((char *)&made.params + forms[form].offset, params, forms[form].size);
    }
    CUresult result = reserved_is_zero(&made.params) ? take(&made) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        give(node, &made);
    } else {
        gf_params_free(&made);
    }
    return result;
}

static CUresult copy_memory(struct gf_node *node, const struct gf_node *from) {
    if (from->memory == NULL) {
        return CUDA_SUCCESS;
    }
    if ((node->memory = malloc(from->memory_size)) == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(node->memory, from->memory, from->memory_size);
    move_pointers(node, from->memory);
    return CUDA_SUCCESS;
}

static CUresult copy_bodies(struct gf_node *node, const struct gf_node *from) {
    if (from->body_count == 0) {
        return CUDA_SUCCESS;
    }
    struct gf_model **copies = calloc(from->body_count, sizeof(struct gf_model *));
    for (unsigned i = 0; copies != NULL && i < from->body_count; i++) {
        copies[i] = gf_model_copy(from->bodies[i]);
    }
    CUresult result =
        copies == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_node_keep_bodies(node, copies, from->body_count);
    free(copies);
    if (from->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        node->params.conditional.phGraph_out = node->body_handles;
    }
    return result;
}

CUresult gf_params_copy(struct gf_node *node, const struct gf_node *from) {
    struct gf_node made = {.params = from->params,
                           .context = from->context,
                           .context_ends = from->context_ends,
                           .memory_size = from->memory_size,
                           .value_bytes = from->value_bytes,
                           .conditional = from->conditional};
    CUresult result = copy_memory(&made, from);
    result = result == CUDA_SUCCESS ? copy_bodies(&made, from) : result;
    if (result != CUDA_SUCCESS) {
        gf_params_free(&made);
        return result;
    }
    gf_graph_memory_share(&made, from);
    give(node, &made);
    return gf_params_attributes(node, from->attributes, from->attribute_count);
}

CUresult gf_params_attributes(struct gf_node *node, const CUlaunchAttribute *attributes, unsigned count) {
    CUlaunchAttribute *kept = malloc((count + 1) * sizeof *kept);
    unsigned kinds = 0;
    if (kept == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned place = 0;
        while (place < kinds && kept[place].id != attributes[i].id) {
            place++;
        }
        if (gf_attribute_is_of_nodes(attributes[i].id)) {
            kept[place] = attributes[i];
            kinds += place == kinds;
        }
    }
    free(node->attributes);
    node->attributes = kept;
    node->attribute_count = kinds;
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

void gf_params_tell(const struct gf_node *node, enum gf_form form, void *params) {
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        CUdeviceptr *address = form == GF_FORM_ANY ? &((CUgraphNodeParams *)params)->alloc.dptr
                                                   : &((CUDA_MEM_ALLOC_NODE_PARAMS_v2 *)params)->dptr;
        *address = node->params.alloc.dptr;
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        ((CUgraphNodeParams *)params)->conditional.phGraph_out = node->body_handles;
    }
}

bool gf_params_is_fixed(const struct gf_node *node) {
    return node->allocation != NULL || node->body_count > 0;
}

static bool is_host(const struct gf_volume *v) {
    uint64_t address = v->type == CU_MEMORYTYPE_HOST ? (uint64_t)v->host : v->device;
    return v->type != CU_MEMORYTYPE_ARRAY && !gf_copy_is_device(v->type, address);
}

bool gf_params_reads_host(const struct gf_node *node) {
    const struct gf_volume source = gf_copy_source(&node->params.memcpy.copyParams);
    return node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && is_host(&source);
}

bool gf_params_writes_host(const struct gf_node *node) {
    const struct gf_volume target = gf_copy_target(&node->params.memcpy.copyParams);
    return node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && is_host(&target);
}

bool gf_params_lie_alike(const struct gf_node *one, const struct gf_node *other) {
    return gf_params_reads_host(one) == gf_params_reads_host(other) &&
           gf_params_writes_host(one) == gf_params_writes_host(other);
}

/* What CUDA takes for the program's memory is page-locked memory too that the device has. */
static bool is_program(const struct gf_volume *v) {
    struct gf_host_range range;
    return is_host(v) ||
           (v->type != CU_MEMORYTYPE_ARRAY &&
            gf_host_find(v->type == CU_MEMORYTYPE_HOST ? (uint64_t)v->host : v->device, &range));
}

static bool are_alike(const struct gf_node *one, const struct gf_node *other) {
    const CUDA_MEMCPY3D *a = &one->params.memcpy.copyParams, *b = &other->params.memcpy.copyParams;
    const struct gf_volume from[] = {gf_copy_source(a), gf_copy_source(b)};
    const struct gf_volume to[] = {gf_copy_target(a), gf_copy_target(b)};
    return is_program(&from[0]) == is_program(&from[1]) && is_program(&to[0]) == is_program(&to[1]);
}

bool gf_params_equal(const struct gf_node *one, const struct gf_node *other) {
    CUgraphNodeParams a = one->params, b = other->params;
    if (one->context != other->context || one->context_ends != other->context_ends) {
        return false;
    }
    if (one->memory != NULL || other->memory != NULL) {
        if (one->value_bytes != other->value_bytes ||
            memcmp(one->memory, other->memory, one->value_bytes) != 0) {
            return false;
        }
        *pointer_of(&a) = *pointer_of(&b) = NULL;
    }
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Of a fill in rows only the address and the value may change. */
static bool fills_alike(const CUDA_MEMSET_NODE_PARAMS_v2 *before, const CUDA_MEMSET_NODE_PARAMS_v2 *after) {
    return (before->height <= 1 && after->height <= 1) ||
           (before->height == after->height && before->width == after->width &&
            before->elementSize == after->elementSize && before->pitch == after->pitch);
}

static bool arrays_alike(const struct gf_node *before, const struct gf_node *after) {
    const CUDA_MEMCPY3D *b = &before->params.memcpy.copyParams, *a = &after->params.memcpy.copyParams;
    return (b->srcMemoryType == CU_MEMORYTYPE_ARRAY) == (a->srcMemoryType == CU_MEMORYTYPE_ARRAY) &&
           (b->dstMemoryType == CU_MEMORYTYPE_ARRAY) == (a->dstMemoryType == CU_MEMORYTYPE_ARRAY);
}

/* The device that an allocation is of; -1: it is none, or has memory of another one mapped. */
static int home_of(uint64_t address) {
    struct gf_allocation allocation;
    struct gf_mapping mapping;
    bool plain = gf_window_find(address, &allocation) && !gf_mapping_find(address, &mapping);
    return plain ? gf_window_device(address) : -1;
}

static bool at_home(CUmemorytype type, uint64_t before, uint64_t after) {
    bool by_address = type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
    int had = by_address ? home_of(before) : -1, has = had < 0 ? -1 : home_of(after);
    return has < 0 || had == has;
}

static bool is_lost(uint64_t before, uint64_t after) {
    return gf_device_range(before, 1, false) && !gf_device_range(after, 1, false);
}

/* The memory of a copy or a fill stays on the same devices. */
static bool stays(const struct gf_node *before, const struct gf_node *after) {
    const CUDA_MEMCPY3D *b = &before->params.memcpy.copyParams, *a = &after->params.memcpy.copyParams;
    switch ((int)before->params.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return at_home(b->srcMemoryType, b->srcDevice, a->srcDevice) &&
               at_home(b->dstMemoryType, b->dstDevice, a->dstDevice);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return at_home(CU_MEMORYTYPE_DEVICE, before->params.memset.dst, after->params.memset.dst) &&
               !is_lost(before->params.memset.dst, after->params.memset.dst);
    default:
        return true;
    }
}

static bool is_cooperative(const struct gf_node *node) {
    return gf_launch_is_cooperative(
        &(CUlaunchConfig){.attrs = node->attributes, .numAttrs = node->attribute_count});
}

static bool batches_alike(const struct gf_node *before, const struct gf_node *after) {
    return before->context == after->context && words_alike(&before->params.memOp, &after->params.memOp);
}

static bool allocates_alike(const struct gf_node *before, const struct gf_node *after) {
    const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *b = &before->params.alloc, *a = &after->params.alloc;
    return b->bytesize == a->bytesize && memcmp(&b->poolProps, &a->poolProps, sizeof b->poolProps) == 0 &&
           b->accessDescCount == a->accessDescCount &&
           (b->accessDescCount == 0 ||
            memcmp(b->accessDescs, a->accessDescs, b->accessDescCount * sizeof *b->accessDescs) == 0);
}

CUgraphExecUpdateResult gf_params_may_replace(const struct gf_node *node, const struct gf_node *by) {
    if (node->params.type != by->params.type) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
    if ((node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !allocates_alike(node, by)) ||
        (node->params.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && !batches_alike(node, by))) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && !are_alike(node, by)) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (!stays(node, by) || (node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && !arrays_alike(node, by))) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL && node->context != by->context) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL && is_cooperative(node) != is_cooperative(by)) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }
    if (node->body_count != by->body_count ||
        (node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
         node->params.conditional.type != by->params.conditional.type)) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEMSET &&
        !fills_alike(&node->params.memset, &by->params.memset)) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}
