/* The records of an event that several processes have. */
#pragma once
#include "context.h"
#include "scheduler.h"

struct sim_ipc_event;

CUresult sim_ipc_event_new(const struct sim_device *device, struct sim_ipc_event **event);
/* INVALID_CONTEXT: it is this process's own. */
CUresult sim_ipc_event_open(const CUipcEventHandle *handle, struct sim_ipc_event **event);
void sim_ipc_event_end(struct sim_ipc_event *event);
/* False: this process did not make it, so it cannot give it on. */
bool sim_ipc_event_handle(const struct sim_ipc_event *event, CUipcEventHandle *handle);
/* An operation for a stream whose place there is a record, from now on the last one; NULL: no memory. */
struct sim_op *sim_ipc_event_record(struct sim_ipc_event *event);
/* One that waits for what is the last record now. */
struct sim_op *sim_ipc_event_wait(struct sim_ipc_event *event);
/* Whether the last record is complete; waits for it, or for the context's end. */
bool sim_ipc_event_done(const struct sim_ipc_event *event);
void sim_ipc_event_await(const struct sim_ipc_event *event, const struct sim_context *context);
