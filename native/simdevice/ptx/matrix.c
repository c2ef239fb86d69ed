/* Matrix multiplication of a warp: one lane's part of D = A * B + C, from the fragments of all lanes. */
#include "fp_helpers.h"
#include <math.h>
#include <string.h>

enum element { F16, BF16, E4M3, E5M2, TF32, F32, F64, S8, U8, S4, U4, B1, S32 };

static const uint8_t element_bits[] = {16, 16, 8, 8, 32, 32, 64, 8, 8, 4, 4, 1, 32};

enum { WMMA = 1, SATURATE = 2, XOR = 4, AND = 8 };

/* Where an element of A (m x k) or of B transposed (n x k) lies: the lane, and the position in its fragment.
 */
static void locate(uint32_t row, uint32_t inner, uint32_t rows, uint32_t depth, uint32_t bits, int wmma,
                   int is_b, uint32_t *lane, uint32_t *position) {
    if (wmma) {
        /* Unspecified by PTX: the elements in order, row by row, each lane an equal part. */
        uint32_t count = rows * depth / 32, index = row * depth + inner;
        *lane = index / count;
        *position = index % count;
        return;
    }
    uint32_t each = bits >= 32 ? 1 : 32 / bits;
    uint32_t block = inner / (4 * each), word = is_b ? block : row / 8 + rows / 8 * block;
    *lane = row % 8 * 4 + inner % (4 * each) / each;
    *position = word * each + inner % each;
}

static uint64_t raw(const uint32_t *fragment, uint32_t position, uint32_t bits) {
    if (bits == 64)
        return fragment[2 * position] | (uint64_t)fragment[2 * position + 1] << 32;
    uint32_t first = position * bits, word = fragment[first / 32] >> first % 32;
    return bits == 32 ? word : word & ((1u << bits) - 1);
}

static double decode(uint64_t bits, enum element type) {
    if (type == F64) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (type == F32 || type == TF32 || type == BF16) {
        uint32_t word = (uint32_t)bits << (type == BF16 ? 16 : 0);
        /* The tensor cores do not see the lower bits. */
        if (type == TF32)
            word &= ~0x1fffu;
        float value;
        memcpy(&value, &word, sizeof value);
        return value;
    }
    return sim_fp_decode((uint32_t)bits, type);
}

static int64_t integer(uint64_t bits, enum element type) {
    switch (type) {
    case S8:
        return (int8_t)bits;
    case S4:
        return (int8_t)(bits << 4) >> 4;
    case S32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static void put_float(uint32_t *d, uint32_t position, enum element type, double value) {
    if (type == F64) {
        memcpy(d + 2 * position, &value, sizeof value);
    } else if (type == F32) {
        float single = (float)value;
        if (isnan(single))
            d[position] = 0x7fffffff;
        else
            memcpy(d + position, &single, sizeof single);
    } else {
        uint16_t half = (uint16_t)sim_fp_encode(value, F16, 0, 0);
        memcpy((uint16_t *)d + position, &half, sizeof half);
    }
}

static void put_integer(uint32_t *d, uint32_t position, int64_t value, int saturate) {
    if (saturate && value > INT32_MAX)
        value = INT32_MAX;
    if (saturate && value < INT32_MIN)
        value = INT32_MIN;
    d[position] = (uint32_t)value;
}

/* The bytes of `shape` are m, n and k / 4; of `types` those of A, B, C and D. `fragments` holds `words` words
 * of each lane: its part of A, and from `b_word` on that of B. */
void sim_mma(uint32_t shape, uint32_t types, uint32_t flags, uint32_t lane, uint32_t words, uint32_t b_word,
             const uint32_t *fragments, const uint32_t *c, uint32_t *d) {
    uint32_t m = shape & 255, n = shape >> 8 & 255, k = (shape >> 16 & 255) * 4;
    enum element a_type = types & 255, b_type = types >> 8 & 255, c_type = types >> 16 & 255,
                 d_type = types >> 24;
    uint32_t a_bits = element_bits[a_type], b_bits = element_bits[b_type], outputs = m * n / 32;
    int wmma = flags & WMMA, floating = a_type <= F64;
    for (uint32_t i = 0; i < outputs; i++) {
        uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        if (wmma) {
            row = (lane * outputs + i) / n;
            column = (lane * outputs + i) % n;
        }
        double sum = 0;
        int64_t total = 0;
        for (uint32_t inner = 0; inner < k; inner++) {
            uint32_t a_lane, a_position, b_lane, b_position;
            locate(row, inner, m, k, a_bits, wmma, 0, &a_lane, &a_position);
            locate(column, inner, n, k, b_bits, wmma, 1, &b_lane, &b_position);
            uint64_t a = raw(fragments + a_lane * words, a_position, a_bits);
            uint64_t b = raw(fragments + b_lane * words + b_word, b_position, b_bits);
            if (a_type == F64)
                sum = fma(decode(a, a_type), decode(b, b_type), sum);
            else if (floating)
                sum += decode(a, a_type) * decode(b, b_type);
            else if (a_type == B1)
                total += flags & XOR ? (int64_t)(a ^ b) : (int64_t)(a & b);
            else
                total += integer(a, a_type) * integer(b, b_type);
        }
        uint64_t before = raw(c, i, element_bits[c_type]);
        if (floating)
            put_float(d, i, d_type, decode(before, c_type) + sum);
        else
            put_integer(d, i, integer(before, c_type) + total, flags & SATURATE);
    }
}
