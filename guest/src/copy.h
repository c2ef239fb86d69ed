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

/* Where one side of a 2-D or 3-D copy starts, and how its rows and slices lie, as the program says it. */
struct gf_volume {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, height;
    CUarray array;
};

/* Rows in host or device memory. */
struct gf_copy_side {
    bool device;
    bool shared; /* with the program, at this address */
    uint64_t address, pitch, slice;
};

/* The side of a copy that is memory, checked. */
CUresult gf_copy_side(const struct gf_volume *volume, const CUDA_MEMCPY3D *size, bool write,
                      struct gf_copy_side *side);
/* A copy of which one side or both are arrays. */
CUresult gf_copy_boxes(const struct gf_volume *to, const struct gf_volume *from, const CUDA_MEMCPY3D *size,
                       CUstream stream);
