/* User objects: the program's, counted, and destroyed when no graph and no program refers to them. */
#pragma once
#include "driver_interop/cuda_driver.h"

struct gf_retained;

/* What a graph refers to, for another graph that is a copy. */
CUresult gf_retained_copy(struct gf_retained **copy, const struct gf_retained *list);
void gf_retained_free(struct gf_retained *list);
