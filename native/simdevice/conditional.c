#include "conditional.h"
#include "condition.h"
#include "graph_exec.h"
#include "memory.h"
#include "scheduler.h"
#include <stdlib.h>

/* ---- instantiating ---- */

/* Memory that the device reaches without the host's help. */
static bool reaches(CUmemorytype type, CUdeviceptr device, const void *host) {
    struct sim_range range;
    return type == CU_MEMORYTYPE_ARRAY || type == CU_MEMORYTYPE_DEVICE ||
           sim_ranges_find(&sim_memory, type == CU_MEMORYTYPE_HOST ? (uint64_t)host : device, &range);
}

static CUresult check_copy(const CUDA_MEMCPY3D *copy) {
    return reaches(copy->srcMemoryType, copy->srcDevice, copy->srcHost) &&
                   reaches(copy->dstMemoryType, copy->dstDevice, copy->dstHost)
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult check_body(const struct sim_graph *body) {
    for (size_t i = 0; i < body->node_count; i++)
        switch ((int)body->nodes[i]->params.type) {
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            SIM_TRY(check_copy(&body->nodes[i]->params.memcpy.copyParams));
            break;
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_MEMSET:
        case CU_GRAPH_NODE_TYPE_EMPTY:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            SIM_TRY(check_body(body->nodes[i]->bodies[0]));
            break;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    return CUDA_SUCCESS;
}

static CUresult plan_bodies(struct sim_node *node) {
    node->body_plans = calloc(node->body_count, sizeof *node->body_plans);
    if (!node->body_plans)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < node->body_count; i++) {
        SIM_TRY(check_body(node->bodies[i]));
        SIM_TRY(sim_plan_make(&node->body_plans[i], node->bodies[i], node->context));
    }
    return CUDA_SUCCESS;
}

static CUresult plan_all(struct sim_graph *graph, struct sim_exec *exec) {
    for (size_t i = 0; i < graph->node_count; i++) {
        struct sim_node *node = graph->nodes[i];
        if (node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            SIM_TRY(plan_bodies(node));
            exec->has_conditions = true;
        }
        for (unsigned j = 0; j < node->body_count; j++)
            SIM_TRY(plan_all(node->bodies[j], exec));
    }
    return CUDA_SUCCESS;
}

static bool all_used(const struct sim_graph *graph) {
    for (struct sim_condition *each = graph->conditions; each; each = each->next)
        if (!each->used)
            return false;
    for (size_t i = 0; i < graph->node_count; i++)
        for (unsigned j = 0; j < graph->nodes[i]->body_count; j++)
            if (!all_used(graph->nodes[i]->bodies[j]))
                return false;
    return true;
}

CUresult sim_conditional_prepare(const struct sim_graph *graph, struct sim_exec *exec,
                                 CUgraphInstantiateResult *why) {
    if (!all_used(graph)) {
        *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        return CUDA_ERROR_INVALID_VALUE;
    }
    return plan_all(exec->graph, exec);
}

/* ---- running ---- */

struct conditional_op {
    struct sim_op op;
    const struct sim_node *node; /* the launch keeps it alive */
    uint32_t count;
    struct sim_op *steps[]; /* of one body after the other; NULL: nothing to do */
};

static CUresult run_step(struct sim_op *step) {
    if (step->class->may_block ||
        step->class->may_spin) /* of another conditional node the steps are at work */
        return step->class->run(step);
    sim_work_begin();
    CUresult result = step->class->run(step);
    sim_work_end();
    return result;
}

/* The nodes of a body one after the other, in this thread. */
static CUresult run_body(const struct conditional_op *outer, unsigned body) {
    const struct sim_plan *plans = outer->node->body_plans;
    struct sim_op *const *steps = outer->steps;
    for (unsigned i = 0; i < body; i++)
        steps += plans[i].step_count;
    for (uint32_t i = 0; i < plans[body].step_count; i++) {
        if (!steps[i] || !steps[i]->class->run)
            continue;
        steps[i]->stream = outer->op.stream;
        SIM_TRY(run_step(steps[i]));
    }
    return CUDA_SUCCESS;
}

static void drop(struct sim_op *op) {
    const struct conditional_op *outer = (const struct conditional_op *)op;
    for (uint32_t i = 0; i < outer->count; i++)
        if (outer->steps[i])
            sim_op_discard(outer->steps[i]);
}

static uint32_t value_of(const struct sim_condition *condition) {
    return __atomic_load_n(condition->word, __ATOMIC_ACQUIRE);
}

static CUresult run(struct sim_op *op) {
    const struct conditional_op *outer = (const struct conditional_op *)op;
    const struct sim_node *node = outer->node;
    uint32_t value = value_of(node->condition);
    switch (node->params.conditional.type) {
    case CU_GRAPH_COND_TYPE_IF:
        return value ? run_body(outer, 0) : node->body_count > 1 ? run_body(outer, 1) : CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_WHILE: /* a context that ends iterates no more */
        while (value_of(node->condition) && sim_context_check(op->stream->context) == CUDA_SUCCESS)
            SIM_TRY(run_body(outer, 0));
        return CUDA_SUCCESS;
    default:
        return value < node->body_count ? run_body(outer, value) : CUDA_SUCCESS;
    }
}

static const struct sim_op_class conditional_class = {.run = SIM_WORK(run), .drop = drop, .may_block = true};

static CUresult conditional_op(const struct sim_node *node, struct sim_op **out) {
    uint32_t count = 0;
    for (unsigned i = 0; i < node->body_count; i++)
        count += node->body_plans[i].step_count;
    struct conditional_op *op = sim_op_new(sizeof *op + count * sizeof *op->steps, &conditional_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->node = node;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < node->body_count && result == CUDA_SUCCESS; i++)
        for (uint32_t j = 0; j < node->body_plans[i].step_count && result == CUDA_SUCCESS; j++) {
            const struct sim_node *within = node->body_plans[i].steps[j].node;
            struct sim_op **step = &op->steps[op->count++];
            if (within && !within->disabled)
                result = sim_exec_op(within, step);
        }
    if (result == CUDA_SUCCESS)
        *out = &op->op;
    else
        sim_op_discard(&op->op);
    return result;
}

CUresult sim_exec_op(const struct sim_node *node, struct sim_op **op) {
    return node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? conditional_op(node, op)
                                                               : sim_node_op(node, op);
}

struct defaults_op {
    struct sim_op op;
    struct sim_exec *exec;
    const struct sim_graph *graph; /* that was launched: the executable graph may be another one by now */
};

static void set_defaults(const struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        const struct sim_condition *condition = node->condition;
        if (condition && condition->has_default)
            __atomic_store_n(condition->word, condition->initial, __ATOMIC_RELEASE);
        for (unsigned j = 0; j < node->body_count; j++)
            set_defaults(node->bodies[j]);
    }
}

static CUresult run_defaults(struct sim_op *op) {
    const struct defaults_op *defaults = (const struct defaults_op *)op;
    pthread_mutex_lock(&defaults->exec->lock);
    set_defaults(defaults->graph);
    pthread_mutex_unlock(&defaults->exec->lock);
    return CUDA_SUCCESS;
}

static const struct sim_op_class defaults_class = {.run = SIM_WORK(run_defaults)};

CUresult sim_conditional_defaults_op(struct sim_exec *exec, struct sim_op **out) {
    *out = NULL;
    if (!exec->has_conditions)
        return CUDA_SUCCESS;
    struct defaults_op *op = sim_op_new(sizeof *op, &defaults_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->exec = exec;
    op->graph = exec->graph;
    *out = &op->op;
    return CUDA_SUCCESS;
}
