/* What kernels see through a texture or a surface. A kernel names it by a number, which is looked up and
 * never followed, so that one made up by a kernel reaches nothing. */
#pragma once
#include "cuda.h"
#include <stdbool.h>
#include <stdint.h>

enum sim_view_kind { SIM_VIEW_TEXTURE = 1, SIM_VIEW_SURFACE };

/* The form of a resource, which an instruction must agree with; PTX's .1d, .2d, .3d, .a1d, .a2d, .cube,
 * .acube. */
enum sim_shape { SIM_1D, SIM_2D, SIM_3D, SIM_1D_LAYERED, SIM_2D_LAYERED, SIM_CUBE, SIM_CUBE_LAYERED };

enum { SIM_MOST_LEVELS = 18, SIM_MOST_VIEWS = 1 << 16 };

/* One level of an image: rows of texels, `layers` of them. An absent extent counts as 1. */
struct sim_level {
    uint64_t address, pitch, slice; /* bytes from row to row and from layer to layer */
    uint32_t width, height, layers;
};

enum sim_number { SIM_UNSIGNED, SIM_SIGNED, SIM_UNORM, SIM_SNORM, SIM_FLOATING };

struct sim_texel {
    enum sim_number number;
    uint8_t bytes; /* of a channel */
    uint8_t channels;
};

struct sim_sampler {
    CUaddress_mode address[3];
    bool linear, mip_linear, normalized, integers, srgb;
    bool seamless;           /* what is filtered goes on beyond the edge of a cube's face */
    float bias, least, most; /* of the level */
    float border[4];
};

/* Never changes once it is published, but for what the table keeps in it. */
struct sim_view {
    enum sim_view_kind kind;
    enum sim_shape shape;
    bool buffer; /* linear memory: the index of a texel is all that it takes */
    CUarray_format format;
    struct sim_texel texel;
    struct sim_sampler sampler;
    uint32_t level_count;
    struct sim_level levels[SIM_MOST_LEVELS];
    uint32_t number;
    uint64_t withdrawal;   /* its place among the withdrawals */
    struct sim_view *next; /* of those that are withdrawn */
};

/* A launch, from when it is queued until it has ended. */
struct sim_view_user {
    struct sim_view_user *before, *next;
    uint64_t since; /* withdrawals that came before it */
    bool listed;    /* there were no views otherwise */
};

/* False if the format is not one whose texels are taken apart here. Formats that state their number of
 * channels win over `channels`. */
bool sim_texel_of(CUarray_format format, unsigned channels, struct sim_texel *texel);
/* Makes a copy of the view known under the lowest free number above `base`; 0 if there is none. */
uint32_t sim_view_publish(const struct sim_view *view, uint32_t base);
/* Nothing that is queued from now on may use it. What was queued before may: programs destroy a texture
 * behind their launch without waiting for it (ffmpeg's scale_cuda), and until then its number is not given
 * again. */
void sim_view_withdraw(uint32_t number);
/* A launch is queued, and has ended or was given up. */
void sim_views_enter(struct sim_view_user *user);
void sim_views_leave(struct sim_view_user *user);
/* Of a grid that runs: NULL if the number names no such view. */
const struct sim_view *sim_view_find(uint64_t number, enum sim_view_kind kind);

/* The texel of a place within the level, as four times 32 bits: numbers, or single precision. */
void sim_texel_read(const struct sim_view *view, const struct sim_level *level, int64_t x, int64_t y,
                    int64_t z, uint32_t value[4]);
/* Whether what `sim_texel_read` gives is single precision. */
bool sim_texel_floating(const struct sim_view *view);
/* What an instruction asks for (kernel_abi.h), computed. `coordinates` as in sim_rt_tex. */
void sim_view_sample(const struct sim_view *view, uint32_t how, const uint32_t *coordinates, uint32_t *texel);
void sim_view_gather(const struct sim_view *view, uint32_t how, const uint32_t *coordinates, uint32_t *texel);
uint32_t sim_view_query(const struct sim_view *view, uint32_t what, uint32_t level);
