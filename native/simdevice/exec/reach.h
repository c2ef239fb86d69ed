/* Which addresses a kernel may use. */
#pragma once
#include "kernel_abi.h"
#include <stdbool.h>
#include <stddef.h>

/* Whether kernels are compiled with a check of every address; before anything else is done with a device.
 * False: the process has memory of its own where device memory is to be, so that a check would allow it. */
bool sim_check_kernels(bool check);
bool sim_kernels_checked(void);

/* Copies a text of the kernel's, at most size - 1 bytes of it, and ends it. Where kernels are checked it ends
 * the grid if the text lies elsewhere. */
void sim_take_text(struct sim_thread *t, const char *from, char *to, size_t size);
/* Ends the grid if kernels are checked and may not read there. */
void sim_require_reach(struct sim_thread *t, const void *at, size_t size);
