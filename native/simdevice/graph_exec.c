#include "graph_exec.h"
#include "conditional.h"
#include "event.h"
#include "graph_user.h"
#include "stream.h"
#include <stdlib.h>

static _Atomic uint32_t next_id = 1;

/* With both locks held, or by the last who knows the graph. */
static void free_retired(struct sim_exec *exec, uint64_t launches) {
    struct sim_retired **place = &exec->retired;
    while (*place && (*place)->launches > launches)
        place = &(*place)->next;
    while (*place) {
        struct sim_retired *retired = *place;
        *place = retired->next;
        sim_graph_free(retired->graph);
        sim_plan_free(&retired->plan);
        free(retired);
    }
}

void sim_exec_free_retired(struct sim_exec *exec, uint64_t launches) {
    pthread_mutex_lock(&exec->lock);
    sim_graphs_lock();
    free_retired(exec, launches);
    sim_graphs_unlock();
    pthread_mutex_unlock(&exec->lock);
}

/* In whichever thread lets go of it last: the program's, or the one that ends its last launch. */
static void destroy(void *pointer) {
    struct sim_exec *exec = pointer;
    if (exec->last)
        sim_op_release(exec->last);
    sim_graphs_lock();
    free_retired(exec, exec->launches);
    sim_graph_free(exec->graph);
    sim_graphs_unlock();
    sim_plan_free(&exec->plan);
    pthread_mutex_destroy(&exec->lock);
    free(exec);
}

CUresult sim_exec_acquire(CUgraphExec handle, struct sim_exec **out) {
    SIM_TRY(sim_enter());
    *out = sim_acquire(SIM_HANDLE(handle), SIM_GRAPH_EXEC);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Completes an executable graph whose copy of the graph has been made. */
static CUresult complete(struct sim_exec *exec, struct sim_graph *graph, struct sim_context *context,
                         CUgraphInstantiateResult *why) {
    CUresult result = sim_plan_make(&exec->plan, exec->graph, context);
    if (result == CUDA_ERROR_INVALID_VALUE)
        *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    SIM_TRY(result);
    SIM_TRY(sim_conditional_prepare(graph, exec, why));
    pthread_mutex_init(&exec->lock, NULL);
    exec->source = graph->object.handle;
    exec->id = atomic_fetch_add(&next_id, 1);
    if (!sim_handle_open(exec, SIM_GRAPH_EXEC, context, destroy))
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->instances++;
    return CUDA_SUCCESS;
}

CUresult sim_exec_check_event(const CUgraphNodeParams *params) {
    struct sim_context *context;
    if (params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        return sim_event_context(params->eventRecord.event, &context);
    return params->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT
               ? sim_event_context(params->eventWait.event, &context)
               : CUDA_SUCCESS;
}

CUresult sim_exec_check_named(const struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        struct sim_function *function;
        SIM_TRY(sim_exec_check_event(&node->params));
        if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
            SIM_TRY(sim_function_acquire(node->function, &function));
            sim_release(function);
        }
        for (unsigned j = 0; j < node->body_count; j++)
            SIM_TRY(sim_exec_check_named(node->bodies[j]));
    }
    return CUDA_SUCCESS;
}

static CUresult make(struct sim_graph *graph, cuuint64_t flags, struct sim_context *context,
                     struct sim_exec **out, CUgraphInstantiateResult *why) {
    bool has_memory = sim_graph_has_memory(graph);
    if (graph->instances && (has_memory || sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL)))
        return CUDA_ERROR_NOT_SUPPORTED; /* what these have, there is once */
    struct sim_exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    exec->has_memory = has_memory;
    CUresult result = sim_graph_clone(graph, NULL, &exec->graph);
    if (result == CUDA_SUCCESS) {
        result = complete(exec, graph, context, why);
        if (result == CUDA_SUCCESS) {
            *out = exec;
            return CUDA_SUCCESS;
        }
        sim_plan_free(&exec->plan);
        sim_graph_free(exec->graph);
    }
    free(exec);
    return result;
}

/* What nodes of the executable graph keep: whose they are, and whether they are switched off. */
static void keep_places(struct sim_graph *fresh, const struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *before = graph->nodes[i]->partner;
        fresh->nodes[i]->original = before->original;
        fresh->nodes[i]->disabled = before->disabled;
        for (unsigned j = 0; j < before->body_count; j++)
            keep_places(fresh->nodes[i]->bodies[j], graph->nodes[i]->bodies[j]);
    }
}

static CUresult prepare_again(struct sim_exec *exec, struct sim_graph *graph) {
    CUgraphInstantiateResult why;
    SIM_TRY(sim_graph_clone(graph, NULL, &exec->graph));
    keep_places(exec->graph, graph);
    CUresult result = sim_plan_make(&exec->plan, exec->graph, exec->object.context);
    if (result == CUDA_SUCCESS)
        result = sim_conditional_prepare(graph, exec, &why);
    if (result != CUDA_SUCCESS) {
        sim_plan_free(&exec->plan);
        sim_graph_free(exec->graph);
    }
    return result;
}

/* What was retired while no launch is under way. */
static void free_if_idle(struct sim_exec *exec) {
    if (!exec->last || sim_op_done(exec->last))
        free_retired(exec, exec->launches);
}

CUresult sim_exec_remake(struct sim_exec *exec, struct sim_graph *graph) {
    struct sim_retired *retired = malloc(sizeof *retired);
    if (!retired)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *retired = (struct sim_retired){exec->retired, exec->launches, exec->graph, exec->plan};
    CUresult result = prepare_again(exec, graph);
    if (result != CUDA_SUCCESS) {
        exec->graph = retired->graph;
        exec->plan = retired->plan;
        free(retired);
        return result;
    }
    exec->retired = retired;
    struct sim_graph *source = sim_graph_find((CUgraph)(uintptr_t)exec->source);
    if (source)
        source->instances--;
    graph->instances++;
    exec->source = graph->object.handle;
    free_if_idle(exec);
    return CUDA_SUCCESS;
}

CUresult sim_exec_take_holds(struct sim_exec *exec, struct sim_graph *to, const struct sim_graph *from) {
    if (!to->hold_count && !from->hold_count)
        return CUDA_SUCCESS;
    struct sim_retired *retired = calloc(1, sizeof *retired);
    struct sim_graph *before = retired ? sim_graph_new(NULL) : NULL;
    if (!before) {
        free(retired);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    before->holds = to->holds;
    before->hold_count = to->hold_count;
    to->holds = NULL;
    to->hold_count = 0;
    CUresult result = sim_user_copy_all(from, to) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    *retired = (struct sim_retired){.next = exec->retired, .launches = exec->launches, .graph = before};
    exec->retired = retired;
    free_if_idle(exec);
    return result;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, cuuint64_t flags,
                            CUgraphInstantiateResult *why) {
    const cuuint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                             CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    struct sim_context *context;
    struct sim_exec *exec;
    *why = CUDA_GRAPH_INSTANTIATE_ERROR;
    SIM_TRY(sim_context_current(&context));
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(out && graph && !graph->parent && !graph->capture && (flags & ~known) == 0);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        SIM_REQUIRE(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    SIM_TRY(sim_exec_check_named(graph));
    SIM_TRY(make(graph, flags, context, &exec, why));
    *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *out = SIM_POINTER(CUgraphExec, exec);
    return CUDA_SUCCESS;
}

static const struct sim_op_class uploaded = {.run = NULL};

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
    struct sim_exec *exec;
    struct sim_stream *stream;
    SIM_TRY(sim_exec_acquire(handle, &exec));
    CUresult result = sim_stream_acquire(stream_handle, &stream);
    if (result == CUDA_SUCCESS) {
        /* nothing is to be brought anywhere; a captured stream refuses it */
        struct sim_op *op = sim_op_new(sizeof *op, &uploaded);
        result = op ? sim_submit_and_forget(stream, op) : CUDA_ERROR_OUT_OF_MEMORY;
        sim_release(stream);
    }
    sim_release(exec);
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUgraphInstantiateResult why;
    SIM_REQUIRE(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
    return instantiate(exec, graph, flags, &why);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    CUgraphExec made;
    SIM_REQUIRE(params);
    params->hErrNode_out = NULL;
    SIM_TRY(instantiate(exec ? &made : NULL, graph, params->flags, &params->result_out));
    CUresult result = params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
                          ? cuGraphUpload(made, params->hUploadStream)
                          : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
        cuGraphExecDestroy(made);
        return result;
    }
    *exec = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_size) {
    CUgraphInstantiateResult why;
    if (error_node)
        *error_node = NULL;
    if (log && log_size)
        log[0] = 0;
    return instantiate(exec, graph, 0, &why);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_size) {
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_size);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    SIM_TRY(sim_enter());
    struct sim_exec *exec = sim_handle_close(SIM_HANDLE(handle), SIM_GRAPH_EXEC);
    SIM_REQUIRE(exec);
    pthread_mutex_lock(&exec->lock);
    struct sim_op *last = exec->last; /* refers to it in turn */
    exec->last = NULL;
    pthread_mutex_unlock(&exec->lock);
    if (last)
        sim_op_release(last);
    sim_graphs_lock();
    struct sim_graph *source = sim_graph_find((CUgraph)(uintptr_t)exec->source);
    if (source)
        source->instances--;
    sim_graphs_unlock();
    sim_release(exec);
    return CUDA_SUCCESS;
}

static void end(void *exec_, void *argument) {
    struct sim_exec *exec = exec_;
    (void)argument;
    cuGraphExecDestroy(SIM_POINTER(CUgraphExec, exec));
}

void sim_execs_forget_context(struct sim_context *context) {
    sim_handle_for_each(SIM_GRAPH_EXEC, context, end, NULL);
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags) {
    struct sim_exec *exec;
    SIM_REQUIRE(flags);
    SIM_TRY(sim_exec_acquire(handle, &exec));
    *flags = exec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* which leaves nothing behind */
    sim_release(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec handle, unsigned int *id) {
    struct sim_exec *exec;
    SIM_REQUIRE(id);
    SIM_TRY(sim_exec_acquire(handle, &exec));
    *id = exec->id;
    sim_release(exec);
    return CUDA_SUCCESS;
}
