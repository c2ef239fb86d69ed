#include "stream.h"
#include "synchronized.h"
#include "thread.h"
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t next_id = 1;

static void destroy(void *pointer) {
    free(((struct sim_stream *)pointer)->settings);
    free(pointer);
}

struct sim_stream *sim_stream_new(struct sim_context *context, enum sim_stream_type type, unsigned flags,
                                  int priority) {
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->type = type;
    stream->flags = flags;
    stream->priority = priority;
    stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    stream->id = atomic_fetch_add(&next_id, 1);
    if (!sim_handle_open(stream, SIM_STREAM, type == SIM_STREAM_CREATED ? context : NULL, destroy)) {
        free(stream);
        return NULL;
    }
    return stream;
}

/* The thread's default stream, made on first use; NULL when memory is exhausted. */
static struct sim_stream *per_thread_stream(struct sim_context *context) {
    struct sim_stream *stream = sim_thread_stream(context);
    if (stream)
        return stream;
    stream = sim_stream_new(context, SIM_STREAM_PER_THREAD, CU_STREAM_DEFAULT, SIM_LEAST_PRIORITY);
    if (stream && !sim_thread_keep_stream(stream)) {
        sim_release(sim_handle_close(stream->object.handle, SIM_STREAM));
        return NULL;
    }
    return stream;
}

CUresult sim_stream_acquire(CUstream handle, struct sim_stream **out) {
    struct sim_context *context;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        SIM_TRY(sim_context_current(&context));
        *out = handle == CU_STREAM_PER_THREAD ? per_thread_stream(context) : context->legacy;
        if (!*out)
            return CUDA_ERROR_OUT_OF_MEMORY;
        sim_retain(*out);
        return CUDA_SUCCESS;
    }
    SIM_TRY(sim_enter());
    struct sim_stream *stream = sim_acquire(SIM_HANDLE(handle), SIM_STREAM);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_context_check(stream->context);
    if (result != CUDA_SUCCESS)
        sim_release(stream);
    else
        *out = stream;
    return result;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out && (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) == 0);
    if (priority > SIM_LEAST_PRIORITY)
        priority = SIM_LEAST_PRIORITY;
    if (priority < SIM_GREATEST_PRIORITY)
        priority = SIM_GREATEST_PRIORITY;
    struct sim_stream *stream = sim_stream_new(context, SIM_STREAM_CREATED, flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = SIM_POINTER(CUstream, stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
    return cuStreamCreateWithPriority(out, flags, SIM_LEAST_PRIORITY);
}

/* Its operations go on: they hold references. */
CUresult cuStreamDestroy_v2(CUstream handle) {
    SIM_TRY(sim_enter());
    struct sim_stream *stream = sim_acquire(SIM_HANDLE(handle), SIM_STREAM);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    bool closed = stream->type == SIM_STREAM_CREATED && sim_handle_close(SIM_HANDLE(handle), SIM_STREAM);
    if (closed)
        sim_release(stream);
    sim_release(stream);
    return closed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    struct sim_stream *stream;
    SIM_REQUIRE(priority);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    *priority = stream->priority;
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    struct sim_stream *stream;
    SIM_REQUIRE(flags);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    *flags = stream->flags;
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    struct sim_stream *stream;
    SIM_REQUIRE(id);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    *id = stream->id;
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    struct sim_stream *stream;
    SIM_REQUIRE(context);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    *context = SIM_POINTER(CUcontext, stream->context);
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green) {
    SIM_REQUIRE(green);
    SIM_TRY(cuStreamGetCtx(handle, context));
    *green = NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
    struct sim_stream *stream;
    SIM_REQUIRE(device);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    *device = stream->context->device->ordinal;
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    bool busy = sim_stream_busy(stream);
    CUresult error = sim_context_error(stream->context);
    sim_release(stream);
    return error != CUDA_SUCCESS ? error : busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static const struct sim_op_class nothing = {.run = NULL};

CUresult cuStreamSynchronize(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    if (stream->type == SIM_STREAM_LEGACY && sim_stream_busy(stream)) {
        struct sim_op *op =
            sim_op_new(sizeof *op, &nothing); /* is ordered after all that a legacy operation waits for */
        if (op)
            sim_submit_and_wait(stream, op);
    } else {
        struct sim_op *last = sim_stream_last(stream);
        if (last) {
            sim_op_wait(last);
            sim_op_release(last);
        }
    }
    CUresult error = sim_context_error(stream->context);
    sim_release(stream);
    sim_synchronized();
    return error;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    struct sim_stream *stream;
    SIM_REQUIRE(status);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id) {
    SIM_TRY(cuStreamIsCapturing(handle, status));
    if (id)
        *id = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    SIM_TRY(cuStreamGetCaptureInfo(handle, status, id));
    if (graph)
        *graph = NULL;
    if (dependencies)
        *dependencies = NULL;
    if (count)
        *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count) {
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static __thread CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
