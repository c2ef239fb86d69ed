/* Physical memory that other processes may map (POSIX file descriptors): each a memfd of its own. */
#pragma once
#include "device.h"

/* A descriptor of new memory, whose name begins like that; negative when there is no memory or no descriptor
 * left. */
int sim_shareable_new(const char *prefix, const struct sim_device *device, uint64_t size);
/* Says why there is no memory that is a file, by errno. */
void sim_shareable_failed(void);
/* Another descriptor of the same memory; negative when there is none left. */
int sim_shareable_again(int fd);
/* Whether a link of /proc leads to such memory, by its name. */
bool sim_shareable_is(const char *path, const char *prefix);
/* Whether the descriptor is one of such memory; its device (NULL: not visible here) and its size. */
bool sim_shareable_check(int fd, const char *prefix, struct sim_device **device, uint64_t *size);
