/* Descriptors of ours, out of the way of the program's. */
#pragma once

/* The same descriptor under a high number, closed on exec; if there is none free, under any that is not one
 * of the three standard streams', else as it is. -1 stays -1. */
int gf_put_aside(int fd);
