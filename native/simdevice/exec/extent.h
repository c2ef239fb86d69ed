/* How far an image can be read. One without a given size says itself how long it is, and may lie. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether [offset, offset + size) is inside an image of `limit` bytes; 0: not known, so whether the process
 * can read it. */
bool sim_extent_holds(const void *image, size_t limit, uint64_t offset, uint64_t size);
