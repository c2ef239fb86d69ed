/* What `gpuferry_look`, exported by the guest's libcuda.so.1, is asked by its libnvidia-ml.so.1. */
#pragma once
#include "gpuferry/frames.h"

/* Asks GPUFERRY_MONITOR what the program has, without a session: DEVICES and all that follows it, to be
 * freed; the numbers in it are those that are there. NULL: there was no such answer. */
struct gf_devices *gpuferry_look(void);
