/* Launches as NVIDIA's runtime is to see them. Direct callers of the driver get CUDA_ERROR_INVALID_VALUE for
 * dimensions that no device can have; programs of the runtime get cudaErrorInvalidConfiguration (9), for
 * which the driver API has no code, and the runtime passes on whatever a launch returns. So the runtime is
 * given entry points of its own. It is known by how it asks for functions: in one sweep, which begins with
 * the empty name, before it asks for anything else.
 *
 * NVIDIA's driver 580.159.04 (CUDA 13.0) gave cudart 13.5, which is newer, 1 for the same. Whether the
 * runtime's version decides that is not known, so here it is 9 for all. */
#pragma once

/* A sweep begins, or is over, on this thread. */
void gf_runtime_asks(int asks);
/* What the runtime is given for a function: another one for a launch. */
void *gf_runtime_function(void *function);
