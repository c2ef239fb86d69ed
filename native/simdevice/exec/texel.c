/* Formats, and one texel out of memory. */
#include "ptx/fp_helpers.h"
#include "view.h"
#include <math.h>
#include <string.h>

static const struct format {
    CUarray_format format;
    struct sim_texel texel; /* channels 0: as many as the caller says */
} formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, {SIM_UNSIGNED, 1, 0}},  {CU_AD_FORMAT_UNSIGNED_INT16, {SIM_UNSIGNED, 2, 0}},
    {CU_AD_FORMAT_UNSIGNED_INT32, {SIM_UNSIGNED, 4, 0}}, {CU_AD_FORMAT_SIGNED_INT8, {SIM_SIGNED, 1, 0}},
    {CU_AD_FORMAT_SIGNED_INT16, {SIM_SIGNED, 2, 0}},     {CU_AD_FORMAT_SIGNED_INT32, {SIM_SIGNED, 4, 0}},
    {CU_AD_FORMAT_HALF, {SIM_FLOATING, 2, 0}},           {CU_AD_FORMAT_FLOAT, {SIM_FLOATING, 4, 0}},
    {CU_AD_FORMAT_UNORM_INT8X1, {SIM_UNORM, 1, 1}},      {CU_AD_FORMAT_UNORM_INT8X2, {SIM_UNORM, 1, 2}},
    {CU_AD_FORMAT_UNORM_INT8X4, {SIM_UNORM, 1, 4}},      {CU_AD_FORMAT_UNORM_INT16X1, {SIM_UNORM, 2, 1}},
    {CU_AD_FORMAT_UNORM_INT16X2, {SIM_UNORM, 2, 2}},     {CU_AD_FORMAT_UNORM_INT16X4, {SIM_UNORM, 2, 4}},
    {CU_AD_FORMAT_SNORM_INT8X1, {SIM_SNORM, 1, 1}},      {CU_AD_FORMAT_SNORM_INT8X2, {SIM_SNORM, 1, 2}},
    {CU_AD_FORMAT_SNORM_INT8X4, {SIM_SNORM, 1, 4}},      {CU_AD_FORMAT_SNORM_INT16X1, {SIM_SNORM, 2, 1}},
    {CU_AD_FORMAT_SNORM_INT16X2, {SIM_SNORM, 2, 2}},     {CU_AD_FORMAT_SNORM_INT16X4, {SIM_SNORM, 2, 4}},
};

bool sim_texel_of(CUarray_format format, unsigned channels, struct sim_texel *texel) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].format == format) {
            *texel = formats[i].texel;
            if (texel->channels == 0)
                texel->channels = (uint8_t)channels;
            return texel->channels == channels && (channels == 1 || channels == 2 || channels == 4);
        }
    return false;
}

/* 8 and 16 bits become fractions unless the program wants them as they are; 32 bits never do. */
static enum sim_number number_of(const struct sim_view *view) {
    const struct sim_texel *texel = &view->texel;
    if (view->kind == SIM_VIEW_TEXTURE && !view->sampler.integers && texel->bytes < 4) {
        if (texel->number == SIM_UNSIGNED)
            return SIM_UNORM;
        if (texel->number == SIM_SIGNED)
            return SIM_SNORM;
    }
    return texel->number;
}

bool sim_texel_floating(const struct sim_view *view) {
    return number_of(view) >= SIM_UNORM;
}

static float linear_light(float c) {
    return c <= 0.04045f ? c / 12.92f : powf((c + 0.055f) / 1.055f, 2.4f);
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t channel(uint32_t raw, unsigned bytes, enum sim_number number, bool light) {
    int32_t with_sign = bytes == 1 ? (int8_t)raw : bytes == 2 ? (int16_t)raw : (int32_t)raw;
    float most = (float)((1u << (8 * bytes - 1)) - 1);
    switch (number) {
    case SIM_SIGNED:
        return (uint32_t)with_sign;
    case SIM_UNORM:
        most = most * 2 + 1;
        return bits_of(light ? linear_light((float)raw / most) : (float)raw / most);
    case SIM_SNORM:
        return bits_of(fmaxf((float)with_sign / most, -1.0f));
    case SIM_FLOATING:
        return bytes == 4 ? raw : bits_of(sim_fp_decode(raw, 0));
    default:
        return raw;
    }
}

static bool bring_inside(CUaddress_mode mode, int64_t size, int64_t *at) {
    int64_t i = *at;
    if (i >= 0 && i < size)
        return true;
    switch (mode) {
    case CU_TR_ADDRESS_MODE_BORDER:
        return false;
    case CU_TR_ADDRESS_MODE_WRAP:
        i %= size;
        *at = i < 0 ? i + size : i;
        return true;
    case CU_TR_ADDRESS_MODE_MIRROR:
        i %= 2 * size;
        i = i < 0 ? i + 2 * size : i;
        *at = i < size ? i : 2 * size - 1 - i;
        return true;
    default:
        *at = i < 0 ? 0 : size - 1;
        return true;
    }
}

static void border(const struct sim_view *view, uint32_t value[4]) {
    for (int c = 0; c < 4; c++) {
        float colour = view->sampler.border[c];
        bool fits = colour >= -0x1p31f && colour < 0x1p32f;
        value[c] = sim_texel_floating(view) ? bits_of(colour) : fits ? (uint32_t)(int64_t)colour : 0;
    }
}

void sim_texel_read(const struct sim_view *view, const struct sim_level *level, int64_t x, int64_t y,
                    int64_t z, uint32_t value[4]) {
    const CUaddress_mode *modes = view->sampler.address;
    bool layered = view->shape != SIM_3D;
    bool inside = bring_inside(modes[0], level->width, &x) && bring_inside(modes[1], level->height, &y) &&
                  bring_inside(layered ? CU_TR_ADDRESS_MODE_CLAMP : modes[2], level->layers, &z);
    if (!inside) {
        border(view, value);
        return;
    }
    const struct sim_texel *texel = &view->texel;
    uint64_t size = (uint64_t)texel->bytes * texel->channels;
    const uint8_t *from = (const uint8_t *)(uintptr_t)(level->address + (uint64_t)z * level->slice +
                                                       (uint64_t)y * level->pitch + (uint64_t)x * size);
    enum sim_number number = number_of(view);
    bool light = view->sampler.srgb && number == SIM_UNORM && texel->bytes == 1;
    value[0] = value[1] = value[2] = 0;
    value[3] = number >= SIM_UNORM ? bits_of(1.0f) : 1;
    for (unsigned c = 0; c < texel->channels; c++) {
        uint32_t raw = 0;
        memcpy(&raw, from + (size_t)c * texel->bytes, texel->bytes);
        value[c] = channel(raw, texel->bytes, number, light && c < 3);
    }
}
