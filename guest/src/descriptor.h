/* Descriptors that stand for what a program has exported: the program may send, copy, inherit and close them.
 */
#pragma once
#include <stdbool.h>

#include "ipc.h"

/* A descriptor that tells the handle to whoever has it, and our end of it. False: there is none left. */
bool gf_descriptor_make(const struct gf_ipc_handle *handle, int *given, int *kept);
/* The handle that a descriptor tells; false: it tells none. */
bool gf_descriptor_read(int given, struct gf_ipc_handle *handle);
/* Whether the descriptor to which `kept` is our end, or a copy of it, is open anywhere. */
bool gf_descriptor_is_open(int kept);
