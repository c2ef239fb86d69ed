/* CUDA arrays: what is known of one here. */
#pragma once
#include "objects.h"

/* What an array takes, and what so many bytes count of the quota. */
uint64_t gf_array_bytes(const struct gf_array *array);
uint64_t gf_array_charge(uint64_t bytes);
/* Whether the device has arrays, or mipmapped ones, that look so. */
CUresult gf_array_check(const CUDA_ARRAY3D_DESCRIPTOR *desc, bool mipmapped);
/* Where it lies; a handle of none: on the first device. */
CUdevice gf_array_device(CUarray handle);
/* The array of a handle, and its extents: bytes of a row, rows, layers. */
CUresult gf_array_look_up(CUarray handle, uint64_t *wire, uint64_t extents[3], uint64_t *texel);
