/* Stream operations that write a word, or wait until a word has a value, one or several in a row. */
#include "graph.h"
#include "memory.h"
#include "stream.h"
#include <string.h>
#include <time.h>

struct batch_op {
    struct sim_op op;
    unsigned count;
    CUstreamBatchMemOpParams words[];
};

static bool is_wait(const CUstreamBatchMemOpParams *word) {
    return word->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           word->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_wide(const CUstreamBatchMemOpParams *word) {
    return word->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           word->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool reached(const struct CUstreamMemOpWaitValueParams_st *wait, bool wide) {
    uint64_t now = wide ? __atomic_load_n((uint64_t *)wait->address, __ATOMIC_ACQUIRE)
                        : __atomic_load_n((uint32_t *)wait->address, __ATOMIC_ACQUIRE);
    uint64_t value = wide ? wait->value64 : wait->value;
    switch (wait->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return wide ? (int64_t)(now - value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    default: /* NOR */
        return wide ? ~(now | value) != 0 : (uint32_t)~(now | value) != 0;
    }
}

/* A context that ends waits for nothing more. */
static void wait_until(const CUstreamBatchMemOpParams *word, const struct sim_context *context) {
    struct timespec pause = {.tv_nsec = 20000};
    while (!reached(&word->waitValue, is_wide(word)) && sim_context_check(context) == CUDA_SUCCESS) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
}

static void write_now(const CUstreamBatchMemOpParams *word) {
    if (is_wide(word))
        __atomic_store_n((uint64_t *)word->writeValue.address, word->writeValue.value64, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)word->writeValue.address, word->writeValue.value, __ATOMIC_RELEASE);
}

static bool is_write(const CUstreamBatchMemOpParams *word) {
    return word->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
           word->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static CUresult run_writes(struct sim_op *op) {
    const struct batch_op *batch = (const struct batch_op *)op;
    for (unsigned i = 0; i < batch->count; i++)
        if (is_write(&batch->words[i]))
            write_now(&batch->words[i]);
    return CUDA_SUCCESS;
}

static CUresult run(struct sim_op *op) {
    const struct batch_op *batch = (const struct batch_op *)op;
    for (unsigned i = 0; i < batch->count; i++) {
        if (is_wait(&batch->words[i])) {
            wait_until(&batch->words[i], op->stream->context);
        } else if (is_write(&batch->words[i])) {
            sim_work_begin();
            write_now(&batch->words[i]);
            sim_work_end();
        }
    }
    return CUDA_SUCCESS;
}

static void describe(const struct sim_op *op, struct sim_node_work *work) {
    const struct batch_op *batch = (const struct batch_op *)op;
    work->params.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    work->params.memOp.count = batch->count;
    work->params.memOp.paramArray = (CUstreamBatchMemOpParams *)batch->words;
}

static const struct sim_op_class waiting_class = {
    .run = SIM_WORK(run), .describe = describe, .may_block = true};
static const struct sim_op_class writing_class = {.run = SIM_WORK(run_writes), .describe = describe};

static CUresult check(const CUstreamBatchMemOpParams *word) {
    struct sim_span span;
    switch (word->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        /* CU_STREAM_WAIT_VALUE_FLUSH is for remote writes, which there are none of */
        SIM_REQUIRE((word->waitValue.flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH)) == 0);
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        SIM_REQUIRE((word->writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) == 0);
        break;
    case CU_STREAM_MEM_OP_BARRIER: /* operations of a stream see each other's effects anyway */
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned size = is_wide(word) ? 8 : 4;
    SIM_REQUIRE(word->waitValue.address % size == 0);
    SIM_TRY(sim_span_require(word->waitValue.address, size, &span));
    SIM_REQUIRE(is_wait(word) || !span.read_only);
    return CUDA_SUCCESS;
}

CUresult sim_batch_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *params, struct sim_op **out) {
    bool waits = false;
    SIM_REQUIRE(params->paramArray && params->count <= SIM_BATCH_MOST && params->flags == 0);
    for (unsigned i = 0; i < params->count; i++) {
        SIM_TRY(check(&params->paramArray[i]));
        waits |= is_wait(&params->paramArray[i]);
    }
    size_t bytes = params->count * sizeof *params->paramArray;
    struct batch_op *op = sim_op_new(sizeof *op + bytes, waits ? &waiting_class : &writing_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->count = params->count;
    memcpy(op->words, params->paramArray, bytes);
    *out = &op->op;
    return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count, CUstreamBatchMemOpParams *operations,
                               unsigned int flags) {
    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 params = {NULL, count, operations, flags};
    struct sim_stream *stream;
    struct sim_op *op;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = sim_batch_op(&params, &op);
    if (result == CUDA_SUCCESS && count)
        result = sim_submit_and_forget(stream, op);
    else if (result == CUDA_SUCCESS)
        sim_op_discard(op);
    sim_release(stream);
    return result;
}

static CUresult submit_one(CUstream stream, CUstreamBatchMemOpType operation, uint64_t address,
                           uint64_t value, unsigned flags) {
    CUstreamBatchMemOpParams word = {
        .waitValue = {.operation = operation, .address = address, .flags = flags}};
    if (is_wide(&word))
        word.waitValue.value64 = value;
    else
        word.waitValue.value = (cuuint32_t)value;
    return cuStreamBatchMemOp_v2(stream, 1, &word, 0);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
