/* CUDA arrays and mipmapped arrays. What they hold lies row by row in pages that nothing else can name; a
 * mipmapped array's levels are arrays that share its pages. */
#pragma once
#include "context.h"
#include "view.h"

/* Pages on a device, for as long as an array, a level or a copy refers to them. */
struct sim_pixels {
    _Atomic uint32_t references;
    struct sim_device *device;
    uint64_t base, bytes;
};

struct sim_array {
    struct sim_object object;
    struct sim_pixels *pixels;
    CUDA_ARRAY3D_DESCRIPTOR desc; /* as it was given */
    struct sim_texel texel;
    enum sim_shape shape;
    struct sim_level level;
    bool part; /* a level or a plane: it ends with what it is part of */
};

struct sim_mipmap {
    struct sim_object object;
    struct sim_pixels *pixels;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint32_t level_count;
    CUarray levels[SIM_MOST_LEVELS];
};

/* Whether an array of a device may look so, and its shape and extents. `levels` is NULL of one without
 * mipmaps, else it is brought into the range that the extents allow. */
CUresult sim_array_check(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t *levels, struct sim_texel *texel,
                         enum sim_shape *shape, struct sim_level *level);
/* Lays a level out at an address; what it takes. */
uint64_t sim_level_place(struct sim_level *level, const struct sim_texel *texel, uint64_t address);
CUresult sim_pixels_new(struct sim_device *device, uint64_t bytes, struct sim_pixels **pixels);
void sim_pixels_release(struct sim_pixels *pixels);
/* An array over pixels, of which it takes a reference; NULL when memory is exhausted. */
struct sim_array *sim_array_over(struct sim_context *context, struct sim_pixels *pixels,
                                 const struct sim_array *like);
