/* Texture fetching as the CUDA C++ Programming Guide describes it ("Texture Fetching"): addressing, filtering
 * with weights of 8 bits of fraction, cubemaps, mipmaps. */
#include "kernel_abi.h"
#include "ptx/fp_helpers.h"
#include "view.h"
#include <math.h>
#include <string.h>

static const uint8_t dimensions[] = {1, 2, 3, 1, 2, 2, 2};

/* Where a fetch falls: the texel, and how far towards the next one, in 256ths. */
struct place {
    int64_t texel[3];
    uint32_t fraction[3];
};

static float number(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Farther away than any level reaches, but no trap for arithmetic. */
static double within_reason(double u) {
    return isnan(u) ? 0 : fmin(fmax(u, -0x1p32), 0x1p32);
}

static double in_texels(const struct sim_view *view, int dimension, bool normalized, float at,
                        uint32_t size) {
    if (!normalized)
        return within_reason(at);
    double u = at;
    CUaddress_mode mode = view->sampler.address[dimension];
    if (mode == CU_TR_ADDRESS_MODE_WRAP)
        u -= floor(u);
    else if (mode ==
             CU_TR_ADDRESS_MODE_MIRROR) /* texels are mirrored, not coordinates: it differs between two */
        u -= 2 * floor(u / 2);
    return within_reason(u * size);
}

static void put(struct place *place, int dimension, double u, bool linear) {
    double fixed = linear ? floor((u - 0.5) * 256 + 0.5) : floor(u) * 256;
    double texel = floor(fixed / 256);
    place->texel[dimension] = (int64_t)texel;
    place->fraction[dimension] = (uint32_t)(fixed - texel * 256);
}

/* The face of a cube that a vector meets, and where, from 0 to 1. On an edge it is one of those that meet
 * there. */
static uint32_t cube_face(const float v[3], float at[2]) {
    float x = v[0], y = v[1], z = v[2], m, s, t;
    uint32_t face;
    if (fabsf(x) >= fabsf(y) && fabsf(x) >= fabsf(z)) {
        face = x < 0;
        m = fabsf(x), s = x < 0 ? z : -z, t = -y;
    } else if (fabsf(y) >= fabsf(z)) {
        face = 2 + (y < 0);
        m = fabsf(y), s = x, t = y < 0 ? -z : z;
    } else {
        face = 4 + (z < 0);
        m = fabsf(z), s = z < 0 ? -x : x, t = -y;
    }
    at[0] = (s / m + 1) / 2;
    at[1] = (t / m + 1) / 2;
    return face;
}

/* A texel beside a face, whose number is the third coordinate, is one of the face behind that edge. */
static void go_over_edge(const struct sim_level *level, int64_t at[3]) {
    if (at[0] >= 0 && at[0] < level->width && at[1] >= 0 && at[1] < level->height)
        return;
    const float beyond = 1 + 0x1p-23f; /* so that it is the largest component */
    float s = fminf(fmaxf((float)(2 * at[0] + 1) / (float)level->width - 1, -beyond), beyond);
    float t = fminf(fmaxf((float)(2 * at[1] + 1) / (float)level->height - 1, -beyond), beyond);
    const float towards[][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1}, {-s, -t, -1}};
    float on[2];
    at[2] += (int64_t)cube_face(towards[at[2] % 6], on) - at[2] % 6;
    at[0] = (int64_t)(on[0] * (float)level->width);
    at[1] = (int64_t)(on[1] * (float)level->height);
}

static bool is_cube(uint32_t how) {
    uint32_t shape = how & SIM_TEX_SHAPE;
    return shape == SIM_CUBE || shape == SIM_CUBE_LAYERED;
}

/* Where the coordinates fall in a level; the layer, which is a cube's face too, is the third. */
static void locate(const struct sim_view *view, const struct sim_level *level, uint32_t how,
                   const uint32_t *c, bool linear, struct place *place) {
    uint32_t shape = how & SIM_TEX_SHAPE;
    const uint32_t sizes[] = {level->width, level->height, level->layers};
    float at[3] = {number(c[1]), number(c[2]), number(c[3])};
    bool cube = is_cube(how);
    int64_t layer = (int64_t)(int32_t)c[0];
    *place = (struct place){0};
    if (cube) {
        int64_t cubes = level->layers / 6;        /* none where a view leaves less than one */
        int64_t last = cubes > 0 ? cubes - 1 : 0; /* beyond it, the last cube, whichever face it is */
        int64_t number = shape == SIM_CUBE || layer < 0 ? 0 : layer < last ? layer : last;
        layer = number * 6 + cube_face((const float[]){at[0], at[1], at[2]}, at);
    }
    for (int d = 0; d < dimensions[shape]; d++) {
        if (how & SIM_TEX_INTEGER)
            place->texel[d] = (int32_t)c[1 + d];
        else
            put(place, d, in_texels(view, d, view->sampler.normalized || cube, at[d], sizes[d]), linear);
        place->texel[d] += (int32_t)c[SIM_TEX_OFFSET + d];
    }
    if (shape >= SIM_1D_LAYERED)
        place->texel[2] = layer;
}

static void fetch(const struct sim_view *view, const struct sim_level *level, uint32_t how, const uint32_t *c,
                  bool linear, double value[4]) {
    struct place place;
    locate(view, level, how, c, linear, &place);
    int count = dimensions[how & SIM_TEX_SHAPE];
    value[0] = value[1] = value[2] = value[3] = 0;
    for (int corner = 0; corner < 1 << count; corner++) {
        int64_t at[3] = {place.texel[0], place.texel[1], place.texel[2]};
        double weight = 1;
        for (int d = 0; d < count; d++) {
            uint32_t far = corner >> d & 1;
            at[d] += far;
            weight *= (far ? place.fraction[d] : 256 - place.fraction[d]) / 256.0;
        }
        if (weight == 0)
            continue;
        uint32_t texel[4];
        if (view->sampler.seamless && is_cube(how)) /* else the third coordinate may be no face */
            go_over_edge(level, at);
        sim_texel_read(view, level, at[0], at[1], at[2], texel);
        for (int i = 0; i < 4; i++)
            value[i] += weight == 1 ? number(texel[i]) : weight * number(texel[i]);
    }
}

static double longest(const uint32_t *gradient, const struct sim_level *level, bool normalized, int count) {
    const uint32_t sizes[] = {level->width, level->height, level->layers};
    double square = 0;
    for (int d = 0; d < count; d++) {
        double part = number(gradient[d]) * (normalized ? sizes[d] : 1.0);
        square += part * part;
    }
    return square;
}

static double level_of_detail(const struct sim_view *view, uint32_t how, const uint32_t *c) {
    const struct sim_sampler *sampler = &view->sampler;
    double level = 0;
    if (how & SIM_TEX_LEVEL)
        level = number(c[4]);
    if (how & SIM_TEX_GRADIENT) {
        int count = dimensions[how & SIM_TEX_SHAPE];
        level = log2(fmax(longest(c + 4, view->levels, sampler->normalized, count),
                          longest(c + 7, view->levels, sampler->normalized, count))) /
                2;
    }
    level += sampler->bias;
    level = isnan(level) ? 0 : fmin(fmax(level, sampler->least), sampler->most);
    return fmin(fmax(level, 0), view->level_count - 1);
}

static void finish(uint32_t how, const double value[4], uint32_t *texel) {
    for (int i = 0; i < 4; i++) {
        float single = (float)value[i];
        if (how & SIM_TEX_HALF)
            texel[i] = sim_fp_encode(single, 0, 0, 0);
        else
            memcpy(texel + i, &single, sizeof single);
    }
}

void sim_view_sample(const struct sim_view *view, uint32_t how, const uint32_t *c, uint32_t *texel) {
    double detail = view->level_count > 1 ? level_of_detail(view, how, c) : 0;
    if (!sim_texel_floating(view)) {
        struct place place;
        const struct sim_level *level = view->levels + (uint32_t)floor(detail + 0.5);
        locate(view, level, how, c, false, &place);
        sim_texel_read(view, level, place.texel[0], place.texel[1], place.texel[2], texel);
        return;
    }
    bool linear = view->sampler.linear && !(how & SIM_TEX_INTEGER);
    double fixed = view->sampler.mip_linear ? floor(detail * 256 + 0.5) / 256 : floor(detail + 0.5);
    uint32_t first = (uint32_t)fixed;
    double value[4], next[4], fraction = fixed - first;
    fetch(view, view->levels + first, how, c, linear, value);
    if (fraction > 0) {
        fetch(view, view->levels + first + 1, how, c, linear, next);
        for (int i = 0; i < 4; i++)
            value[i] += (next[i] - value[i]) * fraction;
    }
    finish(how, value, texel);
}

void sim_view_gather(const struct sim_view *view, uint32_t how, const uint32_t *c, uint32_t *texel) {
    static const int8_t corners[][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    struct place place;
    uint32_t component = how >> SIM_TEX_COMPONENT & 3;
    locate(view, view->levels, how, c, true, &place);
    double value[4];
    for (int i = 0; i < 4; i++) {
        uint32_t all[4];
        sim_texel_read(view, view->levels, place.texel[0] + corners[i][0], place.texel[1] + corners[i][1],
                       place.texel[2], all);
        texel[i] = all[component];
        value[i] = number(texel[i]);
    }
    if (sim_texel_floating(view))
        finish(how, value, texel);
}
