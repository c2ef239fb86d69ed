/* What processes give each other as 64 bytes (CUipcMemHandle, CUipcEventHandle): it names an open file of the
 * process that gave it. Whoever may look into that process, by the rules of /proc, may open the file. */
#pragma once
#include "device.h"

enum sim_ipc_kind { SIM_IPC_MEMORY = 1, SIM_IPC_EVENT, SIM_IPC_POOLED };

struct sim_ipc_handle {
    uint32_t magic, kind;
    uint32_t pid, file;
    uint64_t started; /* of the process, in ticks: its number may be given again */
    uint64_t secret;  /* which is in the file's name too: its number may be given again */
    uint64_t detail;  /* the kind's own */
    uint64_t unused[3];
};

/* A file of so many bytes for what is shared, all zero, and the handle that names it; negative: there is no
 * memory or no descriptor left. */
int sim_ipc_new(enum sim_ipc_kind kind, const struct sim_device *device, uint64_t size,
                struct sim_ipc_handle *handle);
/* Opens what a handle names: the file, its device and its size. INVALID_CONTEXT: it is this process's own;
 * INVALID_VALUE: there is no such thing (any more). */
CUresult sim_ipc_open(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind, int *file,
                      struct sim_device **device, uint64_t *size);
