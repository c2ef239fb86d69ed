/* What the processes of a program share, and the 64 bytes that name it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

#include "gpuferry/frames.h"
#include "gpuferry/messages.h"
#include "window.h"

enum gf_ipc_kind { GF_IPC_MEMORY = 1, GF_IPC_EVENT, GF_IPC_PHYSICAL, GF_IPC_POOL, GF_IPC_POOLED };

struct gf_ipc_handle {
    uint32_t magic, kind;
    uint64_t session; /* of the exporter */
    uint64_t detail;  /* the kind's own */
    uint8_t token[GF_TOKEN_SIZE];
    uint64_t device; /* whose memory or event it is: its name (devices.h) */
};

/* A handle of this session's, without its token. */
struct gf_ipc_handle gf_ipc_handle(enum gf_ipc_kind kind);
/* INVALID_VALUE: it is none of that kind, or of a device that is not seen here; INVALID_CONTEXT: it is this
 * session's own. */
CUresult gf_ipc_check(const struct gf_ipc_handle *handle, enum gf_ipc_kind kind);
/* A device as a handle names it; and the device that is named, of this process: the exporter may count its
 * devices otherwise. One that has another name by now, or none, is as good as the current. */
uint64_t gf_ipc_device_name(CUdevice device);
CUdevice gf_ipc_device(const struct gf_ipc_handle *handle);
/* Whether other processes may open it: plain device memory of this process. */
bool gf_ipc_exportable(const struct gf_allocation *allocation);
/* What stands behind a handle; INVALID_VALUE: nothing does (any more) that this process could have. */
CUresult gf_ipc_find(const struct gf_ipc_handle *handle, struct gf_rep_sessionImportFind *found);
/* What was found becomes the backing of these addresses. */
CUresult gf_ipc_map(const struct gf_ipc_handle *handle, uint64_t address);
/* Waits for what blocking copies have brought in the legacy streams of a device's contexts: nobody does as
 * long as no other process looks. */
CUresult gf_ipc_copied_in(CUdevice device);
/* A handle of an allocation; what blocking copies have brought there is there when it returns. */
CUresult gf_ipc_offer(const struct gf_allocation *allocation, struct gf_ipc_handle *handle);
/* Opens memory for a context, or counts that it is opened once more. */
CUresult gf_ipc_open(const struct gf_ipc_handle *handle, uint64_t owner, uint64_t *address);
/* Takes back one opening of the memory of that kind at this address; false: none is opened there. */
bool gf_ipc_close(uint64_t address, enum gf_ipc_kind kind);

struct gf_event;
/* A record of an event that other processes have comes behind the copies out before it: they may bring what
 * the other process has mapped too. */
CUresult gf_event_await_copies(const struct gf_event *event, uint64_t stream);
