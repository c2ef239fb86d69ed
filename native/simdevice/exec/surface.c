/* Textures and surfaces as kernels call them: a handle is looked up, never followed. */
#include "engine.h"
#include "ptx/fp_helpers.h"
#include "view.h"
#include <math.h>
#include <string.h>

enum { TRAP, CLAMP, ZERO };

static void fail(struct sim_thread *t, CUresult error, const char *what, uint64_t number)
    __attribute__((noreturn));
static void fail(struct sim_thread *t, CUresult error, const char *what, uint64_t number) {
    struct sim_worker *worker = sim_cta_of(t)->worker;
    sim_run_fail(worker->run, error, "%s %llu", what, (unsigned long long)number);
    sim_worker_abort(worker);
}

/* The address of a reference names what was bound to it when the grid was launched. */
static const struct sim_view *find_bound(const struct sim_grid *grid, uint64_t variable,
                                         enum sim_view_kind kind) {
    for (uint32_t i = 0; i < grid->bound_count; i++)
        if (grid->bound[i].variable == variable)
            return grid->bound[i].view != NULL && grid->bound[i].view->kind == kind ? grid->bound[i].view
                                                                                    : NULL;
    return NULL;
}

static const struct sim_view *find(struct sim_thread *t, uint64_t handle, enum sim_view_kind kind) {
    const struct sim_grid *grid = sim_cta_of(t)->worker->run->grid;
    const struct sim_view *view = handle < SIM_MOST_VIEWS - grid->views
                                      ? sim_view_find(grid->views + handle, kind)
                                      : find_bound(grid, handle, kind);
    if (view == NULL)
        fail(t, CUDA_ERROR_ILLEGAL_ADDRESS,
             kind == SIM_VIEW_TEXTURE ? "there is no texture" : "there is no surface", handle);
    return view;
}

void sim_rt_tex(struct sim_thread *t, uint64_t handle, uint32_t how, const uint32_t *coordinates,
                uint32_t *texel) {
    sim_view_sample(find(t, handle, SIM_VIEW_TEXTURE), how, coordinates, texel);
}

void sim_rt_tld4(struct sim_thread *t, uint64_t handle, uint32_t how, const uint32_t *coordinates,
                 uint32_t *texel) {
    sim_view_gather(find(t, handle, SIM_VIEW_TEXTURE), how, coordinates, texel);
}

enum { OF_SURFACE = 16 };

uint32_t sim_rt_image_query(struct sim_thread *t, uint64_t handle, uint32_t what, uint32_t level) {
    enum sim_view_kind kind = what & OF_SURFACE ? SIM_VIEW_SURFACE : SIM_VIEW_TEXTURE;
    return sim_view_query(find(t, handle, kind), what & ~(uint32_t)OF_SURFACE, level);
}

/* As OpenCL numbers them, which PTX refers to. */
static uint32_t channel_type(const struct sim_texel *texel) {
    switch (texel->number) {
    case SIM_SNORM:
        return texel->bytes == 1 ? 0x10d0 : 0x10d1;
    case SIM_UNORM:
        return texel->bytes == 1 ? 0x10d2 : 0x10d3;
    case SIM_SIGNED:
        return texel->bytes == 1 ? 0x10d7 : texel->bytes == 2 ? 0x10d8 : 0x10d9;
    case SIM_FLOATING:
        return texel->bytes == 2 ? 0x10dd : 0x10de;
    default:
        return texel->bytes == 1 ? 0x10da : texel->bytes == 2 ? 0x10db : 0x10dc;
    }
}

uint32_t sim_view_query(const struct sim_view *view, uint32_t what, uint32_t number) {
    static const uint16_t orders[] = {0, 0x10b0, 0x10b2, 0, 0x10b5};
    const struct sim_level *level =
        view->levels + (number < view->level_count ? number : view->level_count - 1);
    switch (what) {
    case 0:
        return level->width;
    case 1:
        return level->height;
    case 2:
        return view->shape == SIM_3D ? level->layers : 1;
    case 3:
        return channel_type(&view->texel);
    case 4:
        return orders[view->texel.channels];
    case 5:
        return view->sampler.normalized;
    case 6:
        return view->shape == SIM_3D ? 1 : level->layers;
    case 7:
        return view->level_count;
    case 8:
        return 1;
    default:
        return 0;
    }
}

static bool bring_inside(int32_t at, uint64_t room, uint64_t size, uint32_t mode, uint64_t *inside) {
    if (at >= 0 && (uint64_t)at + size <= room) {
        *inside = (uint64_t)at;
        return true;
    }
    *inside = at < 0 ? 0 : room - size;
    return mode == CLAMP;
}

/* Where `size` bytes of the surface lie; NULL if they lie beyond its edges and the instruction lets that
 * pass. */
static uint8_t *locate(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place,
                       uint64_t size) {
    const struct sim_view *view = find(t, handle, SIM_VIEW_SURFACE);
    const struct sim_level *level = view->levels;
    uint64_t row = (uint64_t)level->width * view->texel.bytes * view->texel.channels, x, y, z;
    int32_t third = (int32_t)(view->shape == SIM_3D ? place[3] : place[0]);
    bool fits = size <= row;
    fits = fits && bring_inside((int32_t)place[1], row, size, mode, &x);
    fits = fits && bring_inside((int32_t)place[2], level->height, 1, mode, &y);
    fits = fits && bring_inside(third, level->layers, 1, mode, &z);
    if (fits)
        return (uint8_t *)(uintptr_t)(level->address + z * level->slice + y * level->pitch + x);
    if (mode != ZERO)
        fail(t, CUDA_ERROR_LAUNCH_FAILED, "an access beyond the edges of surface", handle);
    return NULL;
}

void sim_rt_suld(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t size,
                 void *value) {
    const uint8_t *from = locate(t, handle, mode, place, size);
    if (from != NULL)
        memcpy(value, from, size);
    else
        memset(value, 0, size);
}

void sim_rt_sust(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t size,
                 const void *value) {
    uint8_t *to = locate(t, handle, mode, place, size);
    if (to != NULL)
        memcpy(to, value, size);
}

/* A place whose x counts texels, in bytes. Gives the size of a texel. */
static uint32_t in_bytes(const uint32_t *place, const struct sim_texel *texel, uint32_t bytes[4]) {
    uint32_t size = (uint32_t)texel->bytes * texel->channels;
    int64_t x = (int64_t)(int32_t)place[1] * size;
    memcpy(bytes, place, 4 * sizeof *bytes);
    bytes[1] = x > INT32_MAX ? INT32_MAX : x < 0 ? UINT32_MAX : (uint32_t)x;
    return size;
}

/* A channel as a formatted store writes it: of fractions and floating-point numbers the source is single
 * precision. */
static uint32_t formatted(uint32_t bits, const struct sim_texel *texel) {
    float single, least = texel->number == SIM_SNORM ? -1.0f : 0.0f;
    float most = (float)((1u << (8 * texel->bytes - (texel->number == SIM_SNORM))) - 1);
    memcpy(&single, &bits, sizeof single);
    if (texel->number == SIM_UNORM || texel->number == SIM_SNORM)
        return isnan(single) ? 0 : (uint32_t)lrintf(fminf(fmaxf(single, least), 1.0f) * most);
    return texel->number == SIM_FLOATING && texel->bytes == 2 ? sim_fp_encode(single, 0, 0, 0) : bits;
}

void sim_rt_sust_p(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place,
                   const uint32_t *value) {
    const struct sim_texel texel = find(t, handle, SIM_VIEW_SURFACE)->texel;
    uint32_t bytes[4], size = in_bytes(place, &texel, bytes);
    uint8_t *to = locate(t, handle, mode, bytes, size);
    for (unsigned c = 0; to != NULL && c < texel.channels; c++) {
        uint32_t raw = formatted(value[c], &texel);
        memcpy(to + (size_t)c * texel.bytes, &raw, texel.bytes);
    }
}

/* Compares or combines as one step with what other threads do to the place. */
#define REDUCE(type, at, op, value)                                                                          \
    do {                                                                                                     \
        type *where_ = (type *)(void *)(at), old_ = __atomic_load_n(where_, __ATOMIC_RELAXED), new_;         \
        const type value_ = (type)(value);                                                                   \
        do {                                                                                                 \
            new_ = (op) == 0   ? (type)(old_ + value_)                                                       \
                   : (op) == 1 ? (old_ < value_ ? old_ : value_)                                             \
                   : (op) == 2 ? (old_ > value_ ? old_ : value_)                                             \
                   : (op) == 3 ? (type)(old_ & value_)                                                       \
                               : (type)(old_ | value_);                                                      \
        } while (                                                                                            \
            !__atomic_compare_exchange_n(where_, &old_, new_, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));    \
    } while (0)

void sim_rt_sured(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t op,
                  uint32_t is_signed, uint32_t size, uint64_t value) {
    uint8_t *at = locate(t, handle, mode, place, size);
    if (at == NULL)
        return;
    if ((uintptr_t)at % size != 0)
        sim_rt_misaligned(t, (uintptr_t)at);
    const bool by_sign = is_signed && (op == 1 || op == 2);
    if (size == 8 && by_sign)
        REDUCE(int64_t, at, op, value);
    else if (size == 8)
        REDUCE(uint64_t, at, op, value);
    else if (by_sign)
        REDUCE(int32_t, at, op, value);
    else
        REDUCE(uint32_t, at, op, value);
}

void sim_rt_sured_p(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t op,
                    uint32_t size, uint64_t value) {
    const struct sim_texel texel = find(t, handle, SIM_VIEW_SURFACE)->texel;
    uint32_t bytes[4];
    in_bytes(place, &texel, bytes);
    sim_rt_sured(t, handle, mode, bytes, op, texel.number == SIM_SIGNED, size, value);
}
