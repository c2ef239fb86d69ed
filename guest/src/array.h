/* CUDA arrays: what is known of one here. */
#pragma once
#include "objects.h"

/* Bytes of a texel; 0: the format is not carried. */
uint64_t gf_texel_size(CUarray_format format, unsigned channels);
/* The array of a handle, and its extents: bytes of a row, rows, layers. */
CUresult gf_array_look_up(CUarray handle, uint64_t *wire, uint64_t extents[3], uint64_t *texel);
