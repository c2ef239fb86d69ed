/* Which device memory the program may name. Copies themselves are in calls.h. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

/* Whether a range of device memory can be touched: inside one allocation or one module variable, or mapped
 * by the program itself with the right to read or write; or of page-locked memory, which kernels reach from
 * then on. */
bool gf_device_range(uint64_t address, uint64_t size, bool write);
/* Whether an address is the device's, or the program's. */
bool gf_address_is_device(uint64_t address);
/* The same for an address that a copy says to be of host, device or unified memory. */
bool gf_copy_is_device(CUmemorytype type, uint64_t address);

/* Whether the program wants operations on it to be done when they return (SYNC_MEMOPS). */
bool gf_is_synchronous(uint64_t address);

/* A blocking copy from the program's memory into the device's begins: whether it has to be waited for, else
 * it is as if it had been. */
bool gf_copy_in_waits(uint64_t stream);
/* A blocking copy between two devices begins, which comes behind all that both were given; and it is waited
 * for, as what follows on either comes behind it. */
CUresult gf_copy_across(CUdevice to, CUdevice from);
/* A copy into the program's memory was waited for, and so was what came before it in its stream. */
void gf_copied_out(void);
/* Memory of the program of which the device has a copy (mirror.h): where it lies there. False: it has none,
 * or what is copied has to be the program's own, which others may write until the stream is there. */
bool gf_copy_mirror(uint64_t *address, uint64_t size);

/* One side of a copy: rows in host or device memory. */
struct gf_side {
    bool device;
    uint64_t address, pitch;
};

struct gf_extent {
    uint64_t width, rows;
};

CUresult gf_copy_check_side(const struct gf_side *side, const struct gf_extent *extent, bool write);

/* A copy of rows: each end in host or device memory. */
struct gf_row_copy {
    bool to_device, from_device;
    uint64_t to, to_pitch, from, from_pitch, width, rows;
};

/* Calls `visit` for each slice of a copy, until one fails. An array is device memory without an address. */
CUresult gf_copy_each(const CUDA_MEMCPY3D *copy,
                      CUresult (*visit)(void *data, const struct gf_row_copy *slice), void *data);
/* Whether a copy's pitches fit, and its ends are device memory where they should be. */
CUresult gf_copy_check(const CUDA_MEMCPY3D *copy);
/* Enqueues one slice to or from the program's memory; what comes from the device arrives behind. */
CUresult gf_copy_staged(const struct gf_row_copy *slice, uint64_t stream);
/* Copies one slice now, whatever streams do: from within a host call, by its ticket. */
CUresult gf_copy_in_call(const struct gf_row_copy *slice, uint64_t ticket);
/* Whether a fill's address and rows suit its elements, also of one that fills nothing. */
bool gf_fill_fits(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows);
/* Whether a fill's memory is the device's, and its rows lie apart. */
CUresult gf_fill_check(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows);
/* The same for a node, which may fill where there is no memory as long as it does not run: cuDNN captures
 * such fills. */
CUresult gf_fill_node_check(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows);

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
/* A place in an array, checked; `at` is in bytes. */
struct gf_place {
    uint64_t array, at, y, z;
    CUdevice device;
};

CUresult gf_copy_place(const struct gf_volume *volume, const CUDA_MEMCPY3D *size, struct gf_place *place);

/* One end of a copy as a graph's node is sent: a place in an array, or memory. */
struct gf_box_end {
    bool device;
    struct gf_place place; /* without an array `at` is an address */
    uint64_t pitch, height;
};

CUresult gf_copy_ends(const CUDA_MEMCPY3D *copy, struct gf_box_end *to, struct gf_box_end *from);

/* A copy of which one side or both are arrays; `behind`: what comes into page-locked memory arrives later. */
CUresult gf_copy_boxes(const struct gf_volume *to, const struct gf_volume *from, const CUDA_MEMCPY3D *size,
                       CUstream stream, bool behind);
/* The two sides of a copy as its descriptor says them. */
struct gf_volume gf_copy_source(const CUDA_MEMCPY3D *copy);
struct gf_volume gf_copy_target(const CUDA_MEMCPY3D *copy);
