/* What memory of the program may be registered. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "driver_interop/cuda_driver.h"

/* Whether cuMemHostRegister may be called so: all of the memory is there. */
CUresult gf_registration_check(void *memory, size_t size, unsigned flags);
/* And whether all of it may be read and, unless the device only reads it, written. */
CUresult gf_registration_allowed(void *memory, size_t size, unsigned flags);
/* Whether all of a range is mapped. */
bool gf_memory_is_there(const void *memory, size_t size);
