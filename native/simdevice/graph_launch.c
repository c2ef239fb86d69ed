/* Launching: all operations are made first, so that a graph runs as a whole or not at all, then they are put
 * into lanes, which are streams. A graph without branches goes into the stream itself. */
#include "capture.h"
#include "conditional.h"
#include "event.h"
#include "graph_exec.h"
#include "graph_memory.h"
#include "stream.h"
#include <stdlib.h>

/* The end of a launch keeps the executable graph alive until then. */
struct end_op {
    struct sim_op op;
    struct sim_exec *exec;
    uint64_t launches; /* with this one */
};

static void drop_end(struct sim_op *op) {
    const struct end_op *end = (struct end_op *)op;
    sim_exec_free_retired(end->exec, end->launches);
    sim_release(end->exec);
}

static const struct sim_op_class marker = {.run = NULL};
static const struct sim_op_class end_class = {.drop = drop_end};

static CUresult make_ops(struct sim_exec *exec, struct sim_op **ops) {
    SIM_TRY(sim_graph_check_contexts(exec->graph));
    for (uint32_t i = 0; i < exec->plan.step_count; i++) {
        struct sim_node *node = exec->plan.steps[i].node;
        if (!node || node->disabled)
            continue;
        if (!node->context)
            SIM_TRY(sim_context_check(exec->plan.lanes[exec->plan.steps[i].lane].context));
        SIM_TRY(sim_exec_check_event(&node->params)); /* the launch itself records it, or waits for it */
        SIM_TRY(sim_exec_op(node, &ops[i]));
    }
    return CUDA_SUCCESS;
}

static CUresult make_lane(struct sim_lane *lane, const struct sim_stream *launched) {
    if (lane->stream)
        return CUDA_SUCCESS;
    lane->stream =
        sim_stream_new(lane->context, SIM_STREAM_CREATED, CU_STREAM_NON_BLOCKING, launched->priority);
    if (!lane->stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_retain(lane->stream);
    return CUDA_SUCCESS;
}

/* Has what follows in the stream wait for the operation. */
static CUresult wait_in(struct sim_stream *stream, struct sim_op *awaited) {
    if (!awaited || sim_op_done(awaited))
        return CUDA_SUCCESS;
    struct sim_op *op = sim_op_new(sizeof *op, &marker);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_submit(stream, op, awaited);
    sim_op_release(op);
    return CUDA_SUCCESS;
}

/* Puts a step into a stream; takes over `op`, which may be NULL. */
static CUresult submit_step(const struct sim_step *step, struct sim_stream *stream, struct sim_op **op) {
    const struct sim_node *node = step->node;
    if (*op) {
        sim_submit(stream, *op, NULL);
        sim_op_release(*op);
        *op = NULL;
    } else if (node && !node->disabled && node->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        return sim_event_record_in(node->params.eventRecord.event, stream);
    } else if (node && !node->disabled && node->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        return sim_event_wait_in(node->params.eventWait.event, stream);
    }
    return CUDA_SUCCESS;
}

static CUresult submit_straight(const struct sim_plan *plan, struct sim_stream *stream, struct sim_op **ops) {
    for (uint32_t i = 0; i < plan->step_count; i++)
        SIM_TRY(submit_step(&plan->steps[i], stream, &ops[i]));
    return CUDA_SUCCESS;
}

/* The lanes wait for `start`, steps for what they depend on in other lanes, and the stream for all ends. */
static CUresult submit_in_lanes(const struct sim_plan *plan, struct sim_stream *stream, struct sim_op *start,
                                struct sim_op **ops, struct sim_op **ends) {
    for (uint32_t i = 0; i < plan->lane_count; i++)
        SIM_TRY(wait_in(plan->lanes[i].stream, start));
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct sim_step *step = &plan->steps[i];
        struct sim_stream *lane = plan->lanes[step->lane].stream;
        for (uint32_t j = 0; j < step->dependency_count; j++) {
            uint32_t before = plan->dependencies[step->first_dependency + j];
            if (plan->steps[before].lane != step->lane)
                SIM_TRY(wait_in(lane, ends[before]));
        }
        SIM_TRY(submit_step(step, lane, &ops[i]));
        ends[i] = sim_stream_last(lane);
    }
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].ends_lane)
            SIM_TRY(wait_in(stream, ends[i]));
    return CUDA_SUCCESS;
}

static CUresult take_memory(struct sim_exec *exec) {
    if (!exec->has_memory)
        return CUDA_SUCCESS;
    SIM_GRAPHS_LOCKED();
    return sim_graph_memory_launch(exec->graph,
                                   exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
}

static CUresult submit_defaults(struct sim_exec *exec, struct sim_stream *stream) {
    struct sim_op *op;
    SIM_TRY(sim_conditional_defaults_op(exec, &op));
    if (op) {
        sim_submit(stream, op, NULL);
        sim_op_release(op);
    }
    return CUDA_SUCCESS;
}

static CUresult submit_all(struct sim_exec *exec, struct sim_stream *stream, struct sim_op **ops,
                           struct sim_op **ends) {
    const struct sim_plan *plan = &exec->plan;
    SIM_TRY(wait_in(stream, exec->last)); /* launches of one executable graph do not overlap */
    SIM_TRY(submit_defaults(exec, stream));
    if (plan->lane_count <= 1 && (!plan->lane_count || plan->lanes[0].context == stream->context))
        return submit_straight(plan, stream, ops);
    for (uint32_t i = 0; i < plan->lane_count; i++)
        SIM_TRY(make_lane(&plan->lanes[i], stream));
    struct sim_op *start = sim_op_new(sizeof *start, &marker);
    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_submit(stream, start, NULL);
    CUresult result = submit_in_lanes(plan, stream, start, ops, ends);
    sim_op_release(start);
    return result;
}

CUresult sim_exec_launch(struct sim_exec *exec, struct sim_stream *stream) {
    uint32_t count = exec->plan.step_count;
    struct sim_op **ops = calloc(count + 1, sizeof(struct sim_op *));
    struct sim_op **ends = calloc(count + 1, sizeof(struct sim_op *));
    struct end_op *end = sim_op_new(sizeof *end, &end_class);
    CUresult result = ops && ends && end ? make_ops(exec, ops) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = take_memory(exec);
    if (result == CUDA_SUCCESS) {
        result = submit_all(exec, stream, ops, ends);
        sim_retain(exec);
        end->exec = exec;
        end->launches = ++exec->launches;
        sim_submit(stream, &end->op, NULL);
        if (exec->last)
            sim_op_release(exec->last);
        exec->last = &end->op;
    } else if (end) {
        sim_op_release(&end->op);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (ops && ops[i])
            sim_op_discard(ops[i]);
        if (ends && ends[i])
            sim_op_release(ends[i]);
    }
    free(ops);
    free(ends);
    return result;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    struct sim_exec *exec;
    struct sim_stream *stream;
    SIM_TRY(sim_exec_acquire(handle, &exec));
    CUresult result = sim_stream_acquire(stream_handle, &stream);
    if (result == CUDA_SUCCESS) {
        sim_scheduler_await_room(stream);
        pthread_mutex_lock(&exec->lock);
        result = sim_capture_check_stream(stream);
        if (result == CUDA_SUCCESS)
            result = sim_exec_launch(exec, stream);
        pthread_mutex_unlock(&exec->lock);
        sim_release(stream);
    }
    sim_release(exec);
    return result;
}
