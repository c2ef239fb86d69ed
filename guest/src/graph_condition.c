/* Conditional nodes. A kernel is given a condition's value, which only the driver knows, so the server has a
 * graph for each of the program's graphs with such nodes, a home, from the first value on. It keeps the
 * conditional nodes; all else comes when the graph becomes executable, and goes with what was made
 * executable. */
#include <stdlib.h>

#include "calls.h"
#include "channel.h"
#include "context.h"
#include "gpuferry/messages.h"
#include "graph_exec.h"
#include "objects.h"

#define NESTED_MOST 64    /* conditional nodes within one another */
#define BODIES_MOST 4096u /* of one node */

struct gf_condition {
    struct gf_condition *next; /* of the model */
    CUgraphConditionalHandle value;
    bool used;
};

struct gf_graph_home {
    uint64_t handle; /* of an executable graph, which no program knows */
    struct gf_graph_exec *object;
    uint64_t context;
    uint32_t graphs, conditionals; /* on the wire, those that ended included */
    bool in_graph, in_exec;        /* who needs it */
};

/* Homes */

static bool is_there(const struct gf_graph_home *home) {
    return gf_graph_exec_find((CUgraphExec)home->handle) != NULL;
}

static struct gf_graph_home *new_home(uint64_t context) {
    struct gf_graph_home *home = calloc(1, sizeof *home);
    if (home == NULL || (home->object = gf_graph_exec_new(&home->handle)) == NULL) {
        free(home);
        return NULL;
    }
    struct gf_req_sessionGraphBegin begin = {.exec = home->handle};
    uint32_t current = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(context) + 1; /* it is that context's */
    CUresult result = gf_send_struct(GF_OP_sessionGraphBegin, &begin);
    gf_thread.context_id = current;
    if (result != CUDA_SUCCESS) {
        gf_object_discard(home->object);
        free(home);
        return NULL;
    }
    home->context = context;
    home->graphs = 1;
    home->in_graph = true;
    gf_object_publish(home->object, home->handle, gf_context_find((CUcontext)context));
    return home;
}

static void end_if_unused(struct gf_graph_home *home) {
    if (home->in_graph || home->in_exec) {
        return;
    }
    struct gf_object *ended = gf_object_end(home->object, home->handle);
    if (ended != NULL) {
        gf_send_struct(GF_OP_cuGraphExecDestroy, &(struct gf_req_cuGraphExecDestroy){home->handle});
        gf_objects_release(ended);
    }
    free(home);
}

uint64_t gf_graph_home_enter(struct gf_graph_home *home) {
    home->in_exec = true;
    return home->handle;
}

void gf_graph_home_leave(struct gf_graph_home *home) {
    home->in_exec = false;
    if (home->in_graph && is_there(home)) {
        gf_send_struct(GF_OP_sessionGraphRewind, &(struct gf_req_sessionGraphRewind){home->handle});
    }
    end_if_unused(home);
}

void gf_condition_forget(struct gf_model *model) {
    while (model->conditions != NULL) {
        struct gf_condition *condition = model->conditions;
        model->conditions = condition->next;
        free(condition);
    }
    if (model->home != NULL) {
        struct gf_graph_home *home = model->home;
        model->home = NULL;
        home->in_graph = false;
        end_if_unused(home);
    }
}

/* Where a model is */

static struct gf_model *root_of(struct gf_model *model) {
    while (model->parent != NULL) {
        model = model->parent->model;
    }
    return model;
}

/* Child graphs are part of the graph that they are in. */
static uint32_t wire_graph_of(const struct gf_model *model) {
    while (model->parent != NULL && model->parent->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        model = model->parent->model;
    }
    return model->wire_graph;
}

bool gf_node_is_in_body(const struct gf_node *node) {
    const struct gf_node *up = node->model->parent;
    while (up != NULL && up->params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        up = up->model->parent;
    }
    return up != NULL;
}

/* Values */

CUresult gf_condition_make(struct gf_model *model, uint64_t context, unsigned initial, unsigned flags,
                           CUgraphConditionalHandle *value) {
    struct gf_model *root = root_of(model);
    if (root->home != NULL && root->home->context != context) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct gf_condition *condition = calloc(1, sizeof *condition);
    if (condition == NULL || (root->home == NULL && (root->home = new_home(context)) == NULL)) {
        free(condition);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct gf_req_sessionGraphCondition request = {
        .exec = root->home->handle, .graph = wire_graph_of(model), .initial = initial, .flags = flags};
    struct gf_rep_sessionGraphCondition reply;
    CUresult result =
        gf_call_making(GF_OP_sessionGraphCondition, &request, sizeof request, &reply, sizeof reply);
    if (result != CUDA_SUCCESS) {
        free(condition);
        return result;
    }
    *condition = (struct gf_condition){.next = model->conditions, .value = reply.value};
    model->conditions = condition;
    *value = reply.value;
    return CUDA_SUCCESS;
}

/* Of the model or of one that it is part of. */
static struct gf_condition *find(const struct gf_model *model, CUgraphConditionalHandle value) {
    for (; model != NULL; model = model->parent == NULL ? NULL : model->parent->model) {
        for (struct gf_condition *each = model->conditions; each != NULL; each = each->next) {
            if (each->value == value) {
                return each;
            }
        }
    }
    return NULL;
}

/* Nodes */

static bool has_right_size(const CUDA_CONDITIONAL_NODE_PARAMS *params) {
    switch ((int)params->type) {
    case CU_GRAPH_COND_TYPE_IF:
        return params->size == 1 || params->size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return params->size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return params->size > 0 && params->size <= BODIES_MOST;
    default:
        return false;
    }
}

static unsigned depth_of(const struct gf_node *node) {
    unsigned depth = 0;
    for (; node != NULL; node = node->model->parent) {
        depth += node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    }
    return depth;
}

CUresult gf_condition_take(struct gf_node *node, uint32_t *first) {
    const CUDA_CONDITIONAL_NODE_PARAMS *params = &node->params.conditional;
    struct gf_condition *condition = find(node->model, params->handle);
    struct gf_graph_home *home = root_of(node->model)->home;
    struct gf_context *context;
    uint64_t wire;
    if (has_right_size(params) && params->ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (condition == NULL || condition->used || !has_right_size(params) ||
        gf_context_look_up(params->ctx, &context, &wire) != CUDA_SUCCESS || wire != home->context) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (depth_of(node) > NESTED_MOST) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct gf_req_sessionGraphConditional request = {.exec = home->handle,
                                                     .graph = wire_graph_of(node->model),
                                                     .type = params->type,
                                                     .size = params->size,
                                                     .value = params->handle};
    CUresult result = gf_call_making(GF_OP_sessionGraphConditional, &request, sizeof request, NULL, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    condition->used = true;
    node->conditional = ++home->conditionals;
    *first = home->graphs;
    home->graphs += params->size;
    return CUDA_SUCCESS;
}

void gf_condition_clear(struct gf_node *node) {
    struct gf_graph_home *home =
        node->conditional == 0 || node->model == NULL ? NULL : root_of(node->model)->home;
    if (home != NULL && is_there(home)) {
        struct gf_req_sessionGraphDropConditional drop = {home->handle, node->conditional - 1};
        gf_send_struct(GF_OP_sessionGraphDropConditional, &drop);
    }
    node->conditional = 0;
}

/* Becoming executable */

/* What CUDA carries out within a conditional node. */
static bool may_be_in_body(const struct gf_node *node) {
    switch ((int)node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return true;
    default:
        return false;
    }
}

static CUresult check(const struct gf_model *model, bool in_body, CUgraphInstantiateResult *why) {
    for (const struct gf_condition *each = model->conditions; each != NULL; each = each->next) {
        if (!each->used) {
            *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    CUresult result = CUDA_SUCCESS;
    for (const struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        bool within = in_body || n->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
        result = in_body && !may_be_in_body(n) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
        for (unsigned i = 0; i < n->body_count && result == CUDA_SUCCESS; i++) {
            result = check(n->bodies[i], within, why);
        }
    }
    return result;
}

CUresult gf_condition_check(const struct gf_model *model, CUgraphInstantiateResult *why) {
    return check(model, false, why);
}

CUresult gf_graph_exec_look_up(CUgraphExec handle, struct gf_graph_exec **object, uint64_t *wire) {
    *wire = (uint64_t)handle;
    *object = gf_graph_exec_find(handle);
    return *object == NULL || (*object)->exec == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
