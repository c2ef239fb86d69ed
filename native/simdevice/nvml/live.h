/* The driver's side of the figures that NVML shows: what this process holds and does. Devices by the
 * machine's ordinal. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

void sim_live_start(void); /* once, before the others */
void sim_live_memory(int device, int64_t bytes);
/* A kernel begins or ends. */
void sim_live_kernel(int device, bool begins);
