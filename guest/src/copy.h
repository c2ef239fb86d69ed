/* Which device memory the program may name. Copies themselves are in calls.h. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

/* Whether a range of device memory can be touched: inside one allocation or one module variable, or mapped
 * by the program itself with the right to read or write. */
bool gf_device_range(uint64_t address, uint64_t size, bool write);
/* Until a stream, named as on the wire, has done what it was given. */
CUresult gf_wait_for_stream(uint64_t stream);
