/* Physical memory that other processes may map (POSIX file descriptors): each a memfd of its own. */
#pragma once
#include "device.h"

/* A descriptor of new memory; negative when there is no memory or no descriptor left. */
int sim_shareable_new(const struct sim_device *device, uint64_t size);
/* Another descriptor of the same memory; negative when there is none left. */
int sim_shareable_again(int fd);
/* Whether the descriptor is one of shareable memory; its device (NULL: not visible here) and its size. */
bool sim_shareable_check(int fd, struct sim_device **device, uint64_t *size);
