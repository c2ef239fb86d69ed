/* What a texel takes, of the formats that are carried (types.yaml, CUarray_format): guest and server reckon
 * alike. */
#pragma once
#include <cuda.h>
#include <stdint.h>

/* 0: there is no such format, or not of so many channels. */
static inline uint64_t gf_texel_bytes(CUarray_format format, unsigned channels) {
    if (format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4) {
        /* Six for each sign: 1, 2 and 4 channels of 8 bits, then of 16. */
        unsigned place = (unsigned)(format - CU_AD_FORMAT_UNORM_INT8X1) % 6;
        return channels == 1u << place % 3 ? (uint64_t)channels << place / 3 : 0;
    }
    if (channels != 1 && channels != 2 && channels != 4) {
        return 0;
    }
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4ull * channels;
    default:
        return 0;
    }
}
