/* What must be before a call may do anything, as the spec says of each (`needs`). No name of the driver is
 * renamed here: the exported symbols are defined behind this. */
#pragma once
#include "driver_interop/cuda_driver.h"

/* OWNER: the context of an object, which is looked at once that is found. */
enum sim_needs { SIM_NEEDS_NONE, SIM_NEEDS_DRIVER, SIM_NEEDS_CONTEXT, SIM_NEEDS_OWNER };

CUresult sim_may(enum sim_needs needs);
/* Says of a call that was refused, at its first time, that it is not supported; `why`, or NULL: it was asked
 * for something that is not. */
void sim_unsupported(const char *name, const char *why);
/* What captures refuse of calls that no mode of theirs allows, of copies by way of the legacy stream, and of
 * calls that wait for a stream or ask about it. */
CUresult sim_may_capture_unsafe(void);
CUresult sim_may_capture_copy(CUstream stream);
CUresult sim_may_capture_stream(CUstream stream);
