#include "stream.h"
#include "capture.h"
#include "green.h"
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
    if (stream)
        stream->green = sim_thread_green();
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
    if (result == CUDA_SUCCESS && stream->green && atomic_load(&stream->green->gone))
        result = CUDA_ERROR_STREAM_DETACHED;
    if (result != CUDA_SUCCESS)
        sim_release(stream);
    else
        *out = stream;
    return result;
}

CUresult sim_stream_create(CUstream *out, struct sim_context *context, struct sim_green *green,
                           unsigned flags, int priority) {
    if (priority > SIM_LEAST_PRIORITY)
        priority = SIM_LEAST_PRIORITY;
    if (priority < SIM_GREATEST_PRIORITY)
        priority = SIM_GREATEST_PRIORITY;
    struct sim_stream *stream = sim_stream_new(context, SIM_STREAM_CREATED, flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->green = green;
    *out = SIM_POINTER(CUstream, stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out && (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) == 0);
    return sim_stream_create(out, context, sim_thread_green(), flags, priority);
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
    CUresult result = sim_context_check(stream->context);
    if (stream->type != SIM_STREAM_CREATED ||
        (result == CUDA_SUCCESS && !sim_handle_close(SIM_HANDLE(handle), SIM_STREAM)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        sim_capture_forget(stream);
        sim_release(stream);
    }
    sim_release(stream);
    return result;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    if (priority)
        *priority = stream->priority;
    sim_release(stream);
    return priority ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    if (flags)
        *flags = stream->flags;
    sim_release(stream);
    return flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    if (id)
        *id = stream->id;
    sim_release(stream);
    return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Special streams are those of whatever context is current. */
static struct sim_green *green_of(const struct sim_stream *stream) {
    return stream->type == SIM_STREAM_CREATED ? stream->green : sim_thread_green();
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *out) {
    struct sim_stream *stream;
    SIM_REQUIRE(out);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    const struct sim_green *green = green_of(stream);
    *out = green ? SIM_POINTER(CUgreenCtx, green) : NULL;
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    struct sim_stream *stream;
    SIM_REQUIRE(context);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    const struct sim_green *green = green_of(stream);
    *context = SIM_POINTER(CUcontext, green ? green->name : stream->context);
    sim_release(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *out) {
    struct sim_stream *stream;
    SIM_REQUIRE(context && out);
    if (handle == CU_STREAM_PER_THREAD && sim_thread_green())
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    const struct sim_green *green = green_of(stream);
    *out = green ? SIM_POINTER(CUgreenCtx, green) : NULL;
    *context = SIM_POINTER(CUcontext, stream->context);
    sim_release(stream);
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

/* Whether the host may ask about the stream, or wait for it. */
static CUresult check_askable(struct sim_stream *stream) {
    SIM_TRY(sim_capture_check_stream(stream));
    return sim_capture_check_unsafe();
}

CUresult cuStreamQuery(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult error = check_askable(stream);
    if (error == CUDA_SUCCESS)
        error = sim_context_error(stream->context);
    if (error == CUDA_SUCCESS && sim_stream_busy(stream))
        error = CUDA_ERROR_NOT_READY;
    sim_release(stream);
    return error;
}

static const struct sim_op_class nothing = {.run = NULL};

static CUresult synchronize(struct sim_stream *stream) {
    SIM_TRY(check_askable(stream));
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
    sim_synchronized();
    return sim_context_error(stream->context);
}

CUresult cuStreamSynchronize(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = synchronize(stream);
    sim_release(stream);
    return result;
}
