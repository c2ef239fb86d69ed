/* Events that the processes of a program share. Their records are the servers' affair; here is who may open
 * them. */
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "handshake.h"
#include "host_call.h"
#include "ipc.h"
#include "objects.h"
#include "pending.h"
#include "session.h"

/* Guards the tokens. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult export(CUevent handle, struct gf_event *event) {
    struct gf_req_sessionExportEvent request = {.event = (uint64_t)handle};
    if (!gf_random_bytes(request.token, GF_TOKEN_SIZE)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_store(&gf_session.watched, true);
    CUresult result = gf_call_making(GF_OP_sessionExportEvent, &request, sizeof request, NULL, 0);
    if (result == CUDA_SUCCESS) {
        memcpy(event->token, request.token, GF_TOKEN_SIZE);
        event->exported = true;
    }
    return result;
}

/* One that was opened is refused by the server: it is not ours to give. What is refused has a handle of
 * zeros: Warp looks for that in memory of its own that it never wrote. */
CUresult gf_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent handle) {
    struct gf_ipc_handle told = gf_ipc_handle(GF_IPC_EVENT);
    struct gf_event *event = gf_event_find(handle);
    if (pHandle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(pHandle, 0, sizeof *pHandle);
    if (event == NULL || (event->flags & CU_EVENT_INTERPROCESS) == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    told.device = gf_ipc_device_name(gf_context_device(event->object.owner));
    pthread_mutex_lock(&lock);
    CUresult result = event->exported ? CUDA_SUCCESS : export(handle, event);
    memcpy(told.token, event->token, GF_TOKEN_SIZE);
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS) {
        memcpy(pHandle, &told, sizeof told);
    }
    return result;
}

CUresult gf_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle) {
    struct gf_req_sessionImportEvent request;
    struct gf_rep_sessionImportFind found = {0};
    struct gf_ipc_handle told;
    if (phEvent == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&told, &handle, sizeof told);
    CUresult result = gf_ipc_check(&told, GF_IPC_EVENT);
    result = result == CUDA_SUCCESS ? gf_ipc_find(&told, &found) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_event *event = gf_event_new(&request.event);
    if (event == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(request.token, told.token, GF_TOKEN_SIZE);
    atomic_store(&gf_session.watched, true);
    result = gf_call_making(GF_OP_sessionImportEvent, &request, sizeof request, NULL, 0);
    if (result != CUDA_SUCCESS) {
        gf_object_discard(event);
        return result;
    }
    event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event->recorded = true;
    gf_object_publish(event, request.event, gf_context_current());
    *phEvent = (CUevent)request.event;
    return CUDA_SUCCESS;
}

static void nothing(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    (void)call;
    (void)ticket;
    (void)status;
}

/* What the server asks for comes behind what copies out have brought here. */
CUresult gf_event_await_copies(const struct gf_event *event, uint64_t stream) {
    if ((event->flags & CU_EVENT_INTERPROCESS) == 0 || !gf_pending_any()) {
        return CUDA_SUCCESS;
    }
    struct gf_host_task *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *call = (struct gf_host_task){.run = nothing, .copies = true};
    CUresult result = gf_host_call_add(call);
    result = result == CUDA_SUCCESS ? gf_host_call_enqueue(call, stream, false) : result;
    if (result != CUDA_SUCCESS) {
        free(call);
    }
    return result;
}
