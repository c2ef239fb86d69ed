#include "event.h"

#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "stream.h"

struct gf_event {
    struct gf_object object; /* owner: its context */
    unsigned flags;
    _Atomic bool recorded; /* before that it counts as complete, and nobody need be asked */
};

static struct gf_table events = GF_TABLE(GF_HANDLE_EVENT, struct gf_event);

static struct gf_event *find(CUevent event) {
    return gf_table_find(&events, (uint64_t)event);
}

CUresult gf_wire_event(CUevent event, uint64_t *wire) {
    *wire = (uint64_t)event;
    return find(event) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

void gf_event_end_context(uint64_t context) {
    gf_table_end_owned(&events, context);
}

CUresult gf_cuEventCreate(CUevent *phEvent, unsigned Flags) {
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (phEvent == NULL || (Flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((Flags & CU_EVENT_INTERPROCESS) != 0) {
        return (Flags & CU_EVENT_DISABLE_TIMING) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    }
    uint64_t handle;
    struct gf_event *event = gf_table_take(&events, &handle);
    if (event == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->object.owner = gf_context_current_handle();
    event->flags = Flags;
    struct gf_req_cuEventCreate request = {.phEvent = handle, .Flags = Flags};
    CUresult result = gf_send_struct(GF_OP_cuEventCreate, &request);
    if (result != CUDA_SUCCESS) {
        gf_table_release(&events, event);
        return result;
    }
    gf_table_publish(event, handle);
    *phEvent = (CUevent)handle;
    return CUDA_SUCCESS;
}

CUresult gf_cuEventDestroy_v2(CUevent hEvent) {
    struct gf_event *event = find(hEvent);
    if (event == NULL || !gf_table_end(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct gf_req_cuEventDestroy_v2 request = {.hEvent = (uint64_t)hEvent};
    CUresult result = gf_send_struct(GF_OP_cuEventDestroy_v2, &request);
    gf_table_release(&events, event);
    return result;
}

CUresult gf_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned flags) {
    struct gf_event *event = find(hEvent);
    struct gf_req_cuEventRecordWithFlags request = {.hEvent = (uint64_t)hEvent, .flags = flags};
    if (event == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (flags != CU_EVENT_RECORD_DEFAULT) {
        return CUDA_ERROR_INVALID_VALUE; /* the external kind is for captures */
    }
    CUresult result = gf_wire_stream(hStream, &request.hStream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    atomic_store_explicit(&event->recorded, true, memory_order_relaxed);
    return gf_send_struct(GF_OP_cuEventRecordWithFlags, &request);
}

CUresult gf_cuEventRecord(CUevent hEvent, CUstream hStream) {
    return gf_cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult gf_cuEventQuery(CUevent hEvent) {
    struct gf_event *event = find(hEvent);
    struct gf_req_cuEventQuery request = {.hEvent = (uint64_t)hEvent};
    if (event == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return !event->recorded ? CUDA_SUCCESS
                            : gf_call_struct(GF_OP_cuEventQuery, &request, sizeof request, NULL, 0);
}

CUresult gf_cuEventSynchronize(CUevent hEvent) {
    struct gf_event *event = find(hEvent);
    struct gf_req_cuEventSynchronize request = {.hEvent = (uint64_t)hEvent};
    if (event == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return !event->recorded ? CUDA_SUCCESS
                            : gf_call_struct(GF_OP_cuEventSynchronize, &request, sizeof request, NULL, 0);
}

CUresult gf_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    struct gf_event *start = find(hStart), *end = find(hEnd);
    if (pMilliseconds == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (start == NULL || end == NULL || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct gf_req_cuEventElapsedTime_v2 request = {.hStart = (uint64_t)hStart, .hEnd = (uint64_t)hEnd};
    struct gf_rep_cuEventElapsedTime_v2 reply;
    CUresult result =
        gf_call_struct(GF_OP_cuEventElapsedTime_v2, &request, sizeof request, &reply, sizeof reply);
    if (result == CUDA_SUCCESS) {
        *pMilliseconds = reply.pMilliseconds;
    }
    return result;
}
