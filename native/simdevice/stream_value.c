/* Stream operations that write a word, or wait until a word has a value. */
#include "memory.h"
#include "stream.h"
#include <time.h>

struct value_op {
    struct sim_op op;
    uint64_t address, value;
    unsigned flags;
    bool wide; /* 64 bits */
};

static uint64_t load(const struct value_op *v) {
    return v->wide ? __atomic_load_n((uint64_t *)v->address, __ATOMIC_ACQUIRE)
                   : __atomic_load_n((uint32_t *)v->address, __ATOMIC_ACQUIRE);
}

static bool reached(const struct value_op *v) {
    uint64_t now = load(v);
    switch (v->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return v->wide ? (int64_t)(now - v->value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)v->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == v->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & v->value) != 0;
    default: /* NOR */
        return v->wide ? ~(now | v->value) != 0 : (uint32_t)~(now | v->value) != 0;
    }
}

/* A context that ends waits for nothing more. */
static CUresult wait_until(struct sim_op *op) {
    struct sim_context *context = op->stream->context;
    struct timespec pause = {.tv_nsec = 20000};
    while (!reached((struct value_op *)op) && sim_context_check(context) == CUDA_SUCCESS) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
    return CUDA_SUCCESS;
}

static CUresult write_now(struct sim_op *op) {
    struct value_op *v = (struct value_op *)op;
    if (v->wide)
        __atomic_store_n((uint64_t *)v->address, v->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)v->address, (uint32_t)v->value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static const struct sim_op_class wait_class = {.run = SIM_WORK(wait_until), .may_block = true};
static const struct sim_op_class write_class = {.run = SIM_WORK(write_now)};

static CUresult submit(CUstream handle, const struct sim_op_class *class, uint64_t address, uint64_t value,
                       unsigned flags, bool wide) {
    struct sim_stream *stream;
    struct sim_span span;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(address % (wide ? 8 : 4) == 0);
    SIM_TRY(sim_span_require(address, wide ? 8 : 4, &span));
    SIM_REQUIRE(class == &wait_class || !span.read_only);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    struct value_op *op = sim_op_new(sizeof *op, class);
    if (op) {
        op->address = address;
        op->value = value;
        op->flags = flags;
        op->wide = wide;
        sim_submit_and_forget(stream, &op->op);
    }
    sim_release(stream);
    return op ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult submit_wait(CUstream stream, uint64_t address, uint64_t value, unsigned flags, bool wide) {
    SIM_REQUIRE((flags & ~3u) ==
                0); /* CU_STREAM_WAIT_VALUE_FLUSH is for remote writes, which there are none of */
    return submit(stream, &wait_class, address, value, flags, wide);
}

static CUresult submit_write(CUstream stream, uint64_t address, uint64_t value, unsigned flags, bool wide) {
    SIM_REQUIRE((flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) == 0);
    return submit(stream, &write_class, address, value, flags, wide);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return submit_wait(stream, address, value, flags, false);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return submit_wait(stream, address, value, flags, true);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return submit_write(stream, address, value, flags, false);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return submit_write(stream, address, value, flags, true);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return cuStreamWaitValue32_v2(stream, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return cuStreamWaitValue64_v2(stream, address, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return cuStreamWriteValue32_v2(stream, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return cuStreamWriteValue64_v2(stream, address, value, flags);
}

static CUresult submit_one(CUstream stream, const CUstreamBatchMemOpParams *one) {
    switch (one->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return submit_wait(stream, one->waitValue.address, one->waitValue.value, one->waitValue.flags, false);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return submit_wait(stream, one->waitValue.address, one->waitValue.value64, one->waitValue.flags,
                           true);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return submit_write(stream, one->writeValue.address, one->writeValue.value, one->writeValue.flags,
                            false);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return submit_write(stream, one->writeValue.address, one->writeValue.value64, one->writeValue.flags,
                            true);
    case CU_STREAM_MEM_OP_BARRIER: /* operations of a stream see each other's effects anyway */
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                               unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(operations && count <= 256 && flags == 0);
    for (unsigned i = 0; i < count; i++)
        SIM_TRY(submit_one(stream, &operations[i]));
    return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                            unsigned int flags) {
    return cuStreamBatchMemOp_v2(stream, count, operations, flags);
}
