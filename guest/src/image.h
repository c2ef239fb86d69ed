/* Module images: what a program gives to a load call, and the part of it that is shipped. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"
#include "gpuferry/frames.h"

struct gf_image {
    const void *data; /* the program's own memory, or `made` */
    size_t size;
    void *made; /* malloc: where what is shipped is not in one piece in the program's memory; else NULL */
};

struct gf_target {
    uint32_t capability; /* 80 for 8.0 */
    uint32_t kinds;      /* enum gf_image_kind that the server takes */
};

/* Looks inside a fatbin wrapper, fatbin, ELF or PTX text for what suits the device best. Valid until the load
 * call that it is for returns; the caller frees `made`. */
CUresult gf_image_pick(const void *image, const struct gf_target *target, struct gf_image *picked);

/* A fatbin that a wrapper names, and how long it is; other images as they are. NULL: the wrapper holds none.
 */
const void *gf_image_unwrap(const void *image, size_t *size);

/* A kernel's settings on one device: its attributes, and whether it is loaded there. */
enum { GF_SETTING_LOADED = GF_FUNCTION_ATTRIBUTE_COUNT, GF_SETTINGS };

/* The kernels of a loaded image, as the server described them. */
struct gf_kernel_info {
    char *name;
    uint32_t param_count, param_bytes;
    const struct gf_kernel_param *params;
    int32_t attributes[GF_FUNCTION_ATTRIBUTE_COUNT]; /* as loaded */
    _Atomic int *settings; /* as set since, by the kernel or any of its functions: a row for each device */
};

struct gf_kernel_table {
    uint32_t count;
    struct gf_kernel_info *kernels;
    _Atomic int *settings; /* of all of them */
    char *storage;         /* the parameters point into it */
};

/* NULL: the table is malformed or memory is out. Takes `data` over if it succeeds. `devices`: on so many its
 * kernels may be. */
struct gf_kernel_table *gf_kernel_table_parse(char *data, size_t size, uint32_t count, uint32_t devices);
void gf_kernel_table_free(struct gf_kernel_table *table);
/* Index of a kernel; -1: no such name. */
int gf_kernel_table_find(const struct gf_kernel_table *table, const char *name);
