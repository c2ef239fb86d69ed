/* Streams by their handles: the program's own, the default ones, and each thread's. */
#include "stream.h"

#include <stdlib.h>

#include "channel.h"
#include "context.h"
#include "freed.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "objects.h"

struct gf_thread_stream {
    uint64_t context; /* as the program names it: a green one has streams of its own */
    CUstream stream;
    struct gf_thread_stream *next;
};

static CUresult per_thread(CUstream *stream) {
    CUresult result = gf_context_check();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t context = gf_context_shown();
    struct gf_thread_stream *own = gf_thread.streams;
    while (own != NULL && own->context != context) {
        own = own->next;
    }
    if (own == NULL) {
        own = calloc(1, sizeof *own);
        if (own == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        own->context = context;
        own->next = gf_thread.streams;
        gf_thread.streams = own;
    }
    if (gf_stream_find(own->stream) == NULL) {
        result = gf_cuStreamCreateWithPriority(&own->stream, CU_STREAM_DEFAULT, 0);
    }
    *stream = own->stream;
    return result;
}

void gf_stream_thread_end(struct gf_thread *thread) {
    while (thread->streams != NULL) {
        struct gf_thread_stream *own = thread->streams;
        if (atomic_load(&gf_session.state) == GF_READY) {
            gf_cuStreamDestroy_v2(own->stream);
        }
        thread->streams = own->next;
        free(own);
    }
}

/* The object of a default stream is NULL, but for a thread's own, which is a stream like others. */
CUresult gf_stream_look_up(CUstream handle, struct gf_stream **object, uint64_t *wire) {
    CUstream stream = handle;
    CUresult result = handle == CU_STREAM_PER_THREAD ? per_thread(&stream) : CUDA_SUCCESS;
    bool is_default = stream == NULL || stream == CU_STREAM_LEGACY;
    *wire = is_default ? 0 : (uint64_t)stream;
    *object = is_default ? NULL : gf_stream_find(stream);
    gf_stream_named(*object);
    if (result != CUDA_SUCCESS || is_default || *object == NULL) {
        return result != CUDA_SUCCESS || is_default ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    uint64_t green = (*object)->green;
    return green != 0 && gf_green_context_find((CUgreenCtx)green) == NULL ? CUDA_ERROR_STREAM_DETACHED
                                                                          : CUDA_SUCCESS;
}

CUresult gf_stream_usable(const struct gf_stream *object) {
    return object == NULL ? gf_context_check() : gf_owner_usable(object->object.owner);
}

CUresult gf_stream_device(CUstream stream, CUdevice *device) {
    struct gf_stream *object;
    uint64_t wire;
    CUresult result = gf_stream_look_up(stream, &object, &wire);
    result = result == CUDA_SUCCESS ? gf_stream_usable(object) : result;
    if (result == CUDA_SUCCESS) {
        *device = object == NULL ? gf_device_number() : gf_context_device(object->object.owner);
    }
    return result;
}

CUresult gf_wire_stream(CUstream stream, uint64_t *wire) {
    struct gf_stream *object;
    return gf_stream_look_up(stream, &object, wire);
}

CUresult gf_usable_stream(CUstream stream, uint64_t *wire) {
    struct gf_stream *object;
    CUresult result = gf_stream_look_up(stream, &object, wire);
    return result == CUDA_SUCCESS ? gf_stream_usable(object) : result;
}

uint32_t gf_stream_enter(uint64_t stream) {
    uint32_t before = gf_thread.context_id;
    const struct gf_stream *object = gf_stream_find((CUstream)stream);
    if (object != NULL) {
        gf_thread.context_id = gf_handle_slot(object->object.owner) + 1;
    }
    return before;
}

CUresult gf_wait_for_stream(uint64_t stream) {
    struct gf_req_cuStreamSynchronize request = {.hStream = stream};
    uint32_t before = gf_stream_enter(stream);
    CUresult result = gf_call_struct(GF_OP_cuStreamSynchronize, &request, sizeof request, NULL, 0);
    gf_thread.context_id = before;
    return result;
}

CUresult gf_wait_for_context(uint64_t context) {
    struct gf_call call = {.op = GF_OP_cuCtxSynchronize};
    uint32_t before = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(context) + 1;
    CUresult result = gf_call_parts(&call, &(struct iovec){0}, 1);
    gf_thread.context_id = before;
    if (result != call.status) {
        gf_channel_latch(call.context_id, result);
    }
    return call.status;
}
