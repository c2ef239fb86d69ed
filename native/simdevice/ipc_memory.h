/* Device memory that processes share by handles of 64 bytes. */
#pragma once
#include "ipc.h"
#include "range.h"

/* A handle of the memory that holds an address, which must be of that kind. */
CUresult sim_ipc_offer(uint64_t address, enum sim_range_kind wanted, enum sim_ipc_kind kind,
                       struct sim_ipc_handle *handle);
/* Maps what a handle names, or finds it mapped by this context: opens are counted. */
CUresult sim_ipc_import(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind,
                        struct sim_context *context, uint64_t *base);
/* Takes back one opening of the memory of that kind at this address; false: none is opened there. */
bool sim_ipc_close(uint64_t pointer, enum sim_ipc_kind kind);
