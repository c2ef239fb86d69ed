/* Memory that the processes of a program share. A handle is a token of the exporter's, who alone says what it
 * stands for; opened memory is an allocation of the window with other physical memory behind it. */
#include "ipc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "context.h"
#include "devices.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "mirror.h"
#include "session.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

#define MAGIC 0x70694667u /* gFip */

_Static_assert(sizeof(struct gf_ipc_handle) == CU_IPC_HANDLE_SIZE, "CUDA says how long a handle is");

/* Memory that was opened. */
struct import {
    struct import *next;
    uint8_t token[GF_TOKEN_SIZE];
    enum gf_ipc_kind kind;
    uint64_t address, id, context; /* of the allocation */
    unsigned opened;
};

/* Held while the server is asked, so that nobody opens the same twice. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *imports;
static _Atomic bool any; /* was ever opened: spares a look at the lock where nothing was */

struct gf_ipc_handle gf_ipc_handle(enum gf_ipc_kind kind) {
    return (struct gf_ipc_handle){.magic = MAGIC, .kind = kind, .session = gf_session.id};
}

CUresult gf_ipc_check(const struct gf_ipc_handle *handle, enum gf_ipc_kind kind) {
    if (handle->magic != MAGIC || handle->kind != kind || gf_device_is_hidden(handle->device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return handle->session == gf_session.id ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult gf_ipc_find(const struct gf_ipc_handle *handle, struct gf_rep_sessionImportFind *found) {
    struct gf_req_sessionImportFind request = {.session = handle->session};
    memcpy(request.token, handle->token, GF_TOKEN_SIZE);
    CUresult result = gf_call_making(GF_OP_sessionImportFind, &request, sizeof request, found, sizeof *found);
    if (result != CUDA_SUCCESS || handle->kind == GF_IPC_EVENT) {
        return result;
    }
    bool sound = found->size <= gf_session.window_size && found->offset <= found->size && found->bytes > 0 &&
                 found->bytes <= found->size - found->offset;
    return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_ipc_map(const struct gf_ipc_handle *handle, uint64_t address) {
    struct gf_req_sessionImportMap request = {.address = address};
    memcpy(request.token, handle->token, GF_TOKEN_SIZE);
    return gf_call_making(GF_OP_sessionImportMap, &request, sizeof request, NULL, 0);
}

bool gf_ipc_exportable(const struct gf_allocation *allocation) {
    struct gf_shared shared;
    struct gf_mirror mirror;
    return !allocation->imported && allocation->pool == 0 && allocation->owner != 0 &&
           !gf_shared_find(allocation->address, &shared) &&
           !gf_mirror_find(allocation->address, false, &mirror);
}

uint64_t gf_ipc_device_name(CUdevice device) {
    return gf_device_name(gf_session.devices[device].uuid);
}

CUdevice gf_ipc_device(const struct gf_ipc_handle *handle) {
    CUdevice device = 0;
    while (device < gf_session.device_count && gf_ipc_device_name(device) != handle->device) {
        device++;
    }
    return device < gf_session.device_count ? device : gf_device_number();
}

CUresult gf_ipc_copied_in(CUdevice device) {
    struct gf_table *table = &gf_tables[GF_HANDLE_CONTEXT];
    uint32_t before = gf_thread.context_id;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < atomic_load(&table->slots); i++) {
        const struct gf_context *each = gf_table_at(table, i);
        if (each != NULL && each->device == device && each->green == 0 && atomic_load(&each->active)) {
            gf_thread.context_id = i + 1;
            CUresult waited = gf_wait_for_stream(0);
            result = result == CUDA_SUCCESS ? waited : result;
        }
    }
    gf_thread.context_id = before;
    return result;
}

CUresult gf_ipc_offer(const struct gf_allocation *allocation, struct gf_ipc_handle *handle) {
    CUdevice device = gf_window_device(allocation->address);
    CUresult result = gf_window_export(allocation->address, allocation->id, handle->token);
    handle->device = gf_ipc_device_name(device);
    return result == CUDA_SUCCESS && !allocation->open ? gf_ipc_copied_in(device) : result;
}

CUresult gf_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    struct gf_ipc_handle handle = gf_ipc_handle(GF_IPC_MEMORY);
    struct gf_allocation allocation;
    if (pHandle == NULL || !gf_window_find(dptr, &allocation) || !gf_ipc_exportable(&allocation)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_ipc_offer(&allocation, &handle);
    if (result == CUDA_SUCCESS) {
        memcpy(pHandle, &handle, sizeof handle);
    }
    return result;
}

/* The import of that token or, if it is null, at that address. Those that went with their context are
 * forgotten. Lock held. */
static struct import **find(const uint8_t *token, uint64_t address) {
    struct gf_allocation allocation;
    struct import **link = &imports;
    while (*link != NULL) {
        struct import *one = *link;
        if (!gf_window_find(one->address, &allocation) || allocation.id != one->id) {
            *link = one->next;
            free(one);
        } else if (token != NULL ? memcmp(token, one->token, GF_TOKEN_SIZE) == 0 : one->address == address) {
            break;
        } else {
            link = &one->next;
        }
    }
    return link;
}

/* What was not opened yet. Lock held. */
static CUresult import(const struct gf_ipc_handle *handle, uint64_t owner, struct import **out) {
    struct gf_rep_sessionImportFind found = {0};
    struct gf_allocation allocation = {0};
    uint64_t base;
    struct import *made = calloc(1, sizeof *made);
    CUresult result = made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_ipc_find(handle, &found);
    if (result == CUDA_SUCCESS) {
        result = gf_window_import(gf_ipc_device(handle), found.size, found.offset, found.bytes, owner, &base);
    }
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    if ((result = gf_ipc_map(handle, base)) != CUDA_SUCCESS) {
        gf_window_import_end(base, false);
        free(made);
        return result;
    }
    gf_window_find(base + found.offset, &allocation);
    *made = (struct import){.next = imports,
                            .kind = handle->kind,
                            .address = allocation.address,
                            .id = allocation.id,
                            .context = owner};
    memcpy(made->token, handle->token, GF_TOKEN_SIZE);
    imports = *out = made;
    atomic_store(&any, true);
    return CUDA_SUCCESS;
}

CUresult gf_ipc_open(const struct gf_ipc_handle *handle, uint64_t owner, uint64_t *address) {
    pthread_mutex_lock(&lock);
    struct import *found = *find(handle->token, 0);
    CUresult result = found == NULL ? import(handle, owner, &found) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && found->context != owner) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS) {
        found->opened++;
        *address = found->address;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

bool gf_ipc_close(uint64_t address, enum gf_ipc_kind kind) {
    if (!atomic_load_explicit(&any, memory_order_relaxed)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct import **link = find(NULL, address), *found = *link;
    if (found != NULL && found->kind != kind) {
        found = NULL;
    }
    if (found != NULL && --found->opened == 0) {
        *link = found->next;
        gf_window_import_end(address, true);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

CUresult gf_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned Flags) {
    struct gf_ipc_handle told;
    uint64_t address;
    if (pdptr == NULL || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&told, &handle, sizeof told);
    CUresult result = gf_ipc_check(&told, GF_IPC_MEMORY);
    CUdevice here = gf_device_number(), there = gf_ipc_device(&told);
    if (result == CUDA_SUCCESS && there != here && !gf_session.links[here][there].can_access) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    result = result == CUDA_SUCCESS ? gf_ipc_open(&told, gf_context_current_handle(), &address) : result;
    if (result == CUDA_SUCCESS) {
        *pdptr = address;
    }
    return result;
}

CUresult gf_cuIpcCloseMemHandle(CUdeviceptr dptr) {
    bool closed = gf_ipc_close(dptr, GF_IPC_MEMORY);
    gf_window_settle(false);
    return closed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
