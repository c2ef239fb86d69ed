/* Host functions and callbacks in streams. */
#include "graph.h"
#include "simdevice_implicit.h"
#include "stream.h"

struct host_op {
    struct sim_op op;
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *user;
};

static CUresult call_function(struct sim_op *op) {
    struct host_op *host = (struct host_op *)op;
    sim_host_function(true);
    host->function(host->user);
    sim_host_function(false);
    return CUDA_SUCCESS;
}

static CUresult call_callback(struct sim_op *op) {
    struct host_op *host = (struct host_op *)op;
    CUresult status = sim_context_error(op->stream->context);
    sim_host_function(true);
    host->callback(host->stream, status, host->user);
    sim_host_function(false);
    return CUDA_SUCCESS;
}

static void describe(const struct sim_op *op, struct sim_node_work *work) {
    const struct host_op *host = (const struct host_op *)op;
    work->params.type = CU_GRAPH_NODE_TYPE_HOST;
    work->params.host.fn = host->function;
    work->params.host.userData = host->user;
}

static const struct sim_op_class function_class = {
    .run = call_function, .describe = describe, .may_block = true};
static const struct sim_op_class callback_class = {
    .run = call_callback, .may_block = true, .even_after_error = true};

static CUresult submit(CUstream standard, CUstream handle, const struct sim_op_class *class,
                       CUhostFn function, CUstreamCallback callback, void *user) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle ? handle : standard, &stream));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    struct host_op *op = sim_op_new(sizeof *op, class);
    if (op) {
        op->function = function;
        op->callback = callback;
        op->stream = handle;
        op->user = user;
        result = sim_submit_and_forget(stream, &op->op);
    }
    sim_release(stream);
    return result;
}

CUresult sim_host_op(const CUDA_HOST_NODE_PARAMS_v2 *params, struct sim_op **out) {
    SIM_REQUIRE(params->fn);
    struct host_op *op = sim_op_new(sizeof *op, &function_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->function = params->fn;
    op->user = params->userData;
    *out = &op->op;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user) {
    SIM_REQUIRE(function);
    return submit(CU_STREAM_LEGACY, stream, &function_class, function, NULL, user);
}

CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *user, unsigned int sync_mode) {
    SIM_REQUIRE(sync_mode <= CU_HOST_TASK_SPINWAIT);
    return cuLaunchHostFunc(stream, function, user);
}

CUresult sim_cuStreamAddCallback(CUstream standard, CUstream stream, CUstreamCallback callback, void *user,
                                 unsigned int flags) {
    SIM_REQUIRE(callback && flags == 0);
    return submit(standard, stream, &callback_class, NULL, callback, user);
}
