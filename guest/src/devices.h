/* The devices of the session, as the program sees them. */
#pragma once
#include <stdbool.h>

#include "gpuferry/frames.h"

/* How many the program wants (GPUFERRY_GPUS). 0: what is set is no number of devices, and that was said. */
uint32_t gf_devices_wanted(void);
/* What WELCOME says of them; CUDA_VISIBLE_DEVICES chooses which of them the program sees. False: malformed.
 */
bool gf_devices_take(const struct gf_device *devices, const struct gf_device_link *links, int count);
/* A device as the processes of a program name it to each other: both halves of its UUID, one over the other.
 */
uint64_t gf_device_name(const void *uuid);
/* Whether the session has it, and the program does not see it. */
bool gf_device_is_hidden(uint64_t name);
/* Tells the server by which numbers the program calls them, unless that is how it counts them itself. */
void gf_devices_tell(void);
/* A program that was moved knows its devices by what they were when it began: what NVML is told of others is
 * told of those. */
void gf_devices_keep(struct gf_devices *said);
