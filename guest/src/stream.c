#include "stream.h"

#include <stdlib.h>

#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"

struct gf_stream {
    struct gf_object object; /* owner: its context */
    unsigned flags;
    int priority;
    uint64_t id;
};

struct gf_thread_stream {
    uint64_t context, handle;
    struct gf_thread_stream *next;
};

#define FIRST_ID 16 /* below are the default streams */

static struct gf_table streams = GF_TABLE(GF_HANDLE_STREAM, struct gf_stream);
static _Atomic uint64_t next_id = FIRST_ID;

static bool is_default(CUstream stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static struct gf_stream *find(CUstream stream) {
    return gf_table_find(&streams, (uint64_t)stream);
}

static CUresult create(unsigned flags, int priority, uint64_t *out) {
    int least = gf_session.device.stream_priority_least,
        greatest = gf_session.device.stream_priority_greatest;
    uint64_t handle;
    struct gf_stream *stream = gf_table_take(&streams, &handle);
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->object.owner = gf_context_current_handle();
    stream->flags = flags;
    stream->priority = priority > least ? least : priority < greatest ? greatest : priority;
    stream->id = atomic_fetch_add(&next_id, 1);
    struct gf_req_cuStreamCreateWithPriority request = {
        .phStream = handle, .flags = flags, .priority = stream->priority};
    CUresult result = gf_send_struct(GF_OP_cuStreamCreateWithPriority, &request);
    if (result != CUDA_SUCCESS) {
        gf_table_release(&streams, stream);
        return result;
    }
    gf_table_publish(stream, handle);
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult destroy(struct gf_stream *stream, uint64_t handle) {
    if (!gf_table_end(stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct gf_req_cuStreamDestroy_v2 request = {.hStream = handle};
    CUresult result = gf_send_struct(GF_OP_cuStreamDestroy_v2, &request);
    gf_table_release(&streams, stream);
    return result;
}

static CUresult per_thread(uint64_t *wire) {
    uint64_t context = gf_context_current_handle();
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
    if (gf_table_find(&streams, own->handle) == NULL) {
        CUresult result = create(CU_STREAM_DEFAULT, 0, &own->handle);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    *wire = own->handle;
    return CUDA_SUCCESS;
}

void gf_stream_thread_end(struct gf_thread *thread) {
    while (thread->streams != NULL) {
        struct gf_thread_stream *own = thread->streams;
        struct gf_stream *stream = gf_table_find(&streams, own->handle);
        if (stream != NULL && atomic_load(&gf_session.state) == GF_READY) {
            destroy(stream, own->handle);
        }
        thread->streams = own->next;
        free(own);
    }
}

CUresult gf_wire_stream(CUstream stream, uint64_t *wire) {
    if (stream == CU_STREAM_PER_THREAD) {
        return per_thread(wire);
    }
    *wire = is_default(stream) ? 0 : (uint64_t)stream;
    return is_default(stream) || find(stream) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void gf_stream_end_context(uint64_t context) {
    gf_table_end_owned(&streams, context);
}

CUresult gf_cuStreamCreateWithPriority(CUstream *phStream, unsigned flags, int priority) {
    uint64_t handle;
    if (phStream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = create(flags, priority, &handle);
    if (result == CUDA_SUCCESS) {
        *phStream = (CUstream)handle;
    }
    return result;
}

CUresult gf_cuStreamCreate(CUstream *phStream, unsigned Flags) {
    return gf_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult gf_cuStreamDestroy_v2(CUstream hStream) {
    struct gf_stream *stream = find(hStream);
    return stream == NULL ? CUDA_ERROR_INVALID_HANDLE : destroy(stream, (uint64_t)hStream);
}

CUresult gf_cuStreamSynchronize(CUstream hStream) {
    struct gf_req_cuStreamSynchronize request;
    CUresult result = gf_wire_stream(hStream, &request.hStream);
    return result != CUDA_SUCCESS
               ? result
               : gf_call_struct(GF_OP_cuStreamSynchronize, &request, sizeof request, NULL, 0);
}

CUresult gf_cuStreamGetPriority(CUstream hStream, int *priority) {
    struct gf_stream *stream = find(hStream);
    if (stream == NULL && !is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (priority == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *priority = stream == NULL ? 0 : stream->priority;
    return CUDA_SUCCESS;
}

CUresult gf_cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    struct gf_stream *stream = find(hStream);
    if (stream == NULL && !is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (streamId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (hStream == CU_STREAM_PER_THREAD) {
        uint64_t handle;
        CUresult result = per_thread(&handle);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        stream = gf_table_find(&streams, handle);
    }
    *streamId = stream != NULL ? stream->id : 1;
    return CUDA_SUCCESS;
}

CUresult gf_cuStreamGetFlags(CUstream hStream, unsigned *flags) {
    struct gf_stream *stream = find(hStream);
    if (stream == NULL && !is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = stream == NULL ? CU_STREAM_DEFAULT : stream->flags;
    return CUDA_SUCCESS;
}

CUresult gf_cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    if (find(hStream) == NULL && !is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult gf_cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    struct gf_stream *stream = find(hStream);
    if (stream == NULL && !is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = (CUcontext)(stream == NULL ? gf_context_current_handle() : stream->object.owner);
    return CUDA_SUCCESS;
}

CUresult gf_cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    if (pGreenCtx != NULL) {
        *pGreenCtx = NULL;
    }
    return gf_cuStreamGetCtx(hStream, pCtx);
}

/* Capture is not carried, so no stream ever captures. */
CUresult gf_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    if (find(hStream) == NULL && !is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (captureStatus == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult gf_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out) {
    return gf_cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult gf_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                      cuuint64_t *id_out, CUgraph *graph_out,
                                      const CUgraphNode **dependencies_out, size_t *numDependencies_out) {
    return gf_cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult gf_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                      cuuint64_t *id_out, CUgraph *graph_out,
                                      const CUgraphNode **dependencies_out,
                                      const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out) {
    return gf_cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult gf_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static _Thread_local CUstreamCaptureMode current;
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
