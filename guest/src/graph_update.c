/* Changing an executable graph: one node, or all by another graph of the same shape. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "graph_exec.h"
#include "user_object.h"

/* The exec's copy of an original node. */
static struct gf_node *own(struct gf_exec *exec, const struct gf_node *node) {
    return node->handle == 0 ? NULL : gf_model_find(exec->model, node->handle);
}

static bool may_be_disabled(const struct gf_node *node) {
    return node != NULL &&
           (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL ||
            node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY || node->params.type == CU_GRAPH_NODE_TYPE_MEMSET);
}

CUresult gf_exec_enable(struct gf_exec *exec, const struct gf_node *original, bool enabled) {
    gf_graphs_lock();
    struct gf_node *node = own(exec, original);
    CUresult result =
        may_be_disabled(node) ? gf_exec_send_switch(exec, node, enabled) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        node->disabled = !enabled;
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_exec_enabled(struct gf_exec *exec, const struct gf_node *original, unsigned *enabled) {
    gf_graphs_lock();
    struct gf_node *node = own(exec, original);
    CUresult result = may_be_disabled(node) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        *enabled = !node->disabled;
    }
    gf_graphs_unlock();
    return result;
}

/* Pairs two nodes (`below`), once. */
static bool pair(struct gf_node *have, struct gf_node *want, struct gf_node **stack, unsigned *depth) {
    if (have->below != NULL || want->below != NULL) {
        return have->below == want;
    }
    have->below = want;
    want->below = have;
    stack[(*depth)++] = want;
    return true;
}

/* The next node, from this one on, on which none depends. */
static struct gf_node *exit_from(struct gf_node *node) {
    while (node != NULL && node->mark != 0) {
        node = node->next;
    }
    return node;
}

static void unpair(struct gf_model *model) {
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        n->below = NULL;
        n->mark = 0;
    }
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        for (unsigned i = 0; i < n->edge_count; i++) {
            n->edges[i].from->mark = 1;
        }
    }
}

/* As CUDA pairs them: exits in the order in which they were added, and from there the dependencies of each
 * pair in theirs. */
static CUgraphExecUpdateResult pair_all(struct gf_model *have, struct gf_model *want, struct gf_node **stack,
                                        CUgraphExecUpdateResultInfo *info) {
    unsigned depth = 0;
    unpair(have);
    unpair(want);
    struct gf_node *h = exit_from(have->first), *w = exit_from(want->first);
    for (; h != NULL && w != NULL; h = exit_from(h->next), w = exit_from(w->next)) {
        pair(h, w, stack, &depth);
    }
    if (w != NULL) {
        info->errorNode = (CUgraphNode)w->handle;
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    /* Fewer exits: one of as many nodes has another number of dependencies, which is what is told. */
    bool fewer = h != NULL;
    while (depth > 0) {
        w = stack[--depth];
        h = w->below;
        info->errorNode = (CUgraphNode)w->handle;
        if (h->edge_count != w->edge_count) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        for (unsigned i = 0; i < w->edge_count; i++) {
            if (!pair(h->edges[i].from, w->edges[i].from, stack, &depth) ||
                memcmp(&h->edges[i].data, &w->edges[i].data, sizeof w->edges[i].data) != 0) {
                info->errorFromNode = (CUgraphNode)w->edges[i].from->handle;
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            }
        }
    }
    return fewer ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Whether an update would take a copy, a fill or a decision into another context. */
static bool changes_context(const struct gf_node *have, const struct gf_node *want) {
    switch ((int)want->params.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return have->context != want->context;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return have->params.conditional.ctx != want->params.conditional.ctx;
    default:
        return false;
    }
}

/* Whether a graph may become what another one is, whose nodes know then by `below` whose place they take. */
static CUgraphExecUpdateResult compare(struct gf_model *have, struct gf_model *want,
                                       CUgraphExecUpdateResultInfo *info) {
    struct gf_node **stack = malloc((want->count + 1) * sizeof *stack);
    CUgraphExecUpdateResult result = stack == NULL ? CU_GRAPH_EXEC_UPDATE_ERROR
                                     : have->count != want->count
                                         ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
                                         : pair_all(have, want, stack, info);
    free(stack);
    for (struct gf_node *w = want->first; w != NULL && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; w = w->next) {
        info->errorNode = (CUgraphNode)w->handle;
        result = changes_context(w->below, w) && w->below->params.type == w->params.type
                     ? CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
                     : gf_params_may_replace(w->below, w);
        for (unsigned i = 0; i < w->body_count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
            result = compare(w->below->bodies[i], w->bodies[i], info);
        }
    }
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        info->errorNode = NULL;
    }
    return result;
}

static bool same_attributes(const struct gf_node *one, const struct gf_node *other) {
    size_t bytes = one->attribute_count * sizeof *one->attributes;
    return one->attribute_count == other->attribute_count &&
           (bytes == 0 || memcmp(one->attributes, other->attributes, bytes) == 0);
}

/* What the new source refers to takes the place of what the graph referred to. */
static CUresult adopt_references(const struct gf_exec *exec, struct gf_model *have,
                                 const struct gf_model *want) {
    struct gf_retained *before = have->retained;
    have->retained = NULL;
    CUresult result = gf_retained_copy(&have->retained, want->retained);
    gf_exec_release(exec, before);
    return result;
}

/* After it was compared. */
static CUresult adopt(struct gf_exec *exec, struct gf_model *graph, struct gf_model *want) {
    CUresult result = adopt_references(exec, graph, want);
    for (struct gf_node *w = want->first; w != NULL && result == CUDA_SUCCESS; w = w->next) {
        struct gf_node *have = w->below;
        for (unsigned i = 0; i < w->body_count && result == CUDA_SUCCESS; i++) {
            result = adopt(exec, have->bodies[i], w->bodies[i]);
        }
        if (w->body_count > 0) {
            continue;
        }
        if (!gf_params_equal(have, w) || !same_attributes(have, w)) {
            result = gf_exec_stage(exec, have, w);
            result = result == CUDA_SUCCESS ? gf_params_copy(have, w) : result;
            result = result == CUDA_SUCCESS ? gf_exec_send_node(exec, have) : result;
        }
    }
    return result;
}

static bool is_multidimensional(const struct gf_node *node) {
    const CUDA_MEMCPY3D *copy = &node->params.memcpy.copyParams;
    return node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && (copy->Height > 1 || copy->Depth > 1);
}

static CUresult replace(struct gf_exec *exec, struct gf_node *node, const struct gf_node *given,
                        enum gf_form form, const void *params) {
    CUgraphExecUpdateResultInfo info;
    bool alike = gf_params_lie_alike(node, given);
    if (gf_params_may_replace(node, given) != CU_GRAPH_EXEC_UPDATE_SUCCESS || is_multidimensional(node) ||
        is_multidimensional(given)) { /* an update by a graph may bring those */
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!alike && exec->home != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (given->body_count > 0) {
        bool same = compare(node->bodies[0], given->bodies[0], &info) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
        CUresult adopted = same ? adopt(exec, node->bodies[0], given->bodies[0]) : CUDA_ERROR_INVALID_VALUE;
        return adopted == CUDA_SUCCESS ? gf_exec_recheck(exec) : adopted;
    }
    CUresult result = gf_exec_stage(exec, node, given);
    result = result == CUDA_SUCCESS ? gf_params_set(node, form, params) : result;
    if (!alike) {
        return result == CUDA_SUCCESS ? gf_exec_renew(exec) : result;
    }
    result = result == CUDA_SUCCESS ? gf_exec_send_node(exec, node) : result;
    bool attended = gf_params_reads_host(node) || gf_params_writes_host(node);
    return result == CUDA_SUCCESS && attended ? gf_exec_recheck(exec) : result;
}

CUresult gf_exec_set(struct gf_exec *exec, const struct gf_node *original, enum gf_form form,
                     const void *params) {
    gf_graphs_lock();
    struct gf_node *node = own(exec, original);
    struct gf_node given = {.model = node == NULL ? NULL : node->model};
    if (node != NULL) { /* it keeps its context and its attributes */
        given.context = node->context;
        given.context_ends = node->context_ends;
        given.attributes = node->attributes;
        given.attribute_count = node->attribute_count;
    }
    CUresult result = node == NULL || gf_form_type(form, params) != node->params.type ||
                              node->allocation != NULL || /* what it owns stays, and what it decides by */
                              node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL
                          ? CUDA_ERROR_INVALID_VALUE
                          : gf_params_set(&given, form, params);
    if (result == CUDA_SUCCESS) {
        result = replace(exec, node, &given, form, params);
        gf_params_free(&given);
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_exec_set_in(struct gf_exec *exec, const struct gf_node *node, enum gf_form form,
                        const void *params, CUcontext context) {
    const CUgraphNodeParams whole = gf_form_in(form, params, context);
    return gf_exec_set(exec, node, GF_FORM_ANY, &whole);
}

CUresult gf_exec_set_value(struct gf_exec *exec, const struct gf_node *node, enum gf_form form,
                           uint64_t value) {
    return gf_exec_set(exec, node, form, &value);
}

/* Whether nodes decide by other values than those whose place they take, or copy what the device has come to
 * share. */
static bool is_made_otherwise(const struct gf_model *want) {
    bool other = false;
    for (const struct gf_node *w = want->first; w != NULL && !other; w = w->next) {
        other = (w->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
                 w->params.conditional.handle != w->below->params.conditional.handle) ||
                !gf_params_lie_alike(w->below, w);
        for (unsigned i = 0; i < w->body_count && !other; i++) {
            other = is_made_otherwise(w->bodies[i]);
        }
    }
    return other;
}

static int priority_of(const struct gf_node *node) {
    int priority = 0;
    for (unsigned i = 0; i < node->attribute_count; i++) {
        bool is_it = node->attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
        priority = is_it ? node->attributes[i].value.priority : priority;
    }
    return priority;
}

/* The first node of another priority than the one whose place it takes. */
static const struct gf_node *of_other_priority(const struct gf_model *want) {
    const struct gf_node *found = NULL;
    for (const struct gf_node *w = want->first; w != NULL && found == NULL; w = w->next) {
        found = priority_of(w) != priority_of(w->below) ? w : NULL;
        for (unsigned i = 0; i < w->body_count && found == NULL; i++) {
            found = of_other_priority(w->bodies[i]);
        }
    }
    return found;
}

/* A graph that runs by its nodes' priorities keeps them. */
static void compare_priorities(const struct gf_exec *exec, const struct gf_model *want,
                               CUgraphExecUpdateResultInfo *info) {
    bool kept = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
    const struct gf_node *other =
        kept && info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? of_other_priority(want) : NULL;
    if (other != NULL) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        info->errorNode = (CUgraphNode)other->handle;
    }
}

CUresult gf_exec_update(struct gf_exec *exec, struct gf_model *want, CUgraphExecUpdateResultInfo *info) {
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    gf_graphs_lock();
    if (want->parent != NULL || want->captured) {
        gf_graphs_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    info->result = compare(exec->model, want, info);
    compare_priorities(exec, want, info);
    CUresult result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    bool others = exec->source != want->handle, single = exec->home != NULL || exec->memory;
    bool remake =
        info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS && ((exec->memory && others) || is_made_otherwise(want));
    if (single && others && info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS &&
        want->instances > 0) { /* memory, and a value, belong to one executable graph */
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    } else if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        result = gf_model_check_named(want);
        result = result != CUDA_SUCCESS ? result
                 : remake               ? gf_exec_remake(exec, want)
                                        : adopt(exec, exec->model, want);
        result = result == CUDA_SUCCESS ? gf_exec_recheck(exec) : result;
        info->result = result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_exec_update_old(struct gf_exec *exec, struct gf_model *want, CUgraphNode *node,
                            CUgraphExecUpdateResult *result_out) {
    CUgraphExecUpdateResultInfo info;
    CUresult result = gf_exec_update(exec, want, &info);
    *result_out = info.result;
    if (node != NULL) {
        *node = info.errorNode;
    }
    return result;
}
