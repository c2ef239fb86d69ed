/* What the guest's libnvidia-ml.so.1 asks its libcuda.so.1, which exports it. */
#pragma once
#include "gpuferry/frames.h"

/* Asks GPUFERRY_MONITOR what the program has, without a session: DEVICES and all that follows it, to be
 * freed; the numbers in it are those that are there. NULL: there was no such answer. */
struct gf_devices *gpuferry_look(void);
/* Bytes of device memory that this process has: once they are others, so is what a look tells. */
uint64_t gpuferry_held(void);
