/* How the threads of a warp hold the matrices that tensor cores multiply. */
#pragma once
#include <stdint.h>

/* Of six and of four bits as well, each in a byte. The first are numbered as sim_fp_decode does it. */
enum element { F16, BF16, E4M3, E5M2, TF32, E2M1, E2M3, E3M2, F32, F64, S8, U8, S4, U4, B1, S32 };

static const uint8_t element_bits[] = {16, 16, 8, 8, 32, 8, 8, 8, 32, 64, 8, 8, 4, 4, 1, 32};

/* Above these: from MODE on how F64 is rounded (fp_helpers.h), from SELECTOR on mma.sp's. */
enum { WMMA = 1, SATURATE = 2, XOR = 4, AND = 8, MODE = 4, SELECTOR = 6 };

/* Where an element of A (m x k) or of B transposed (n x k) lies: the lane, and the position in its fragment.
 */
static inline void locate(uint32_t row, uint32_t inner, uint32_t rows, uint32_t depth, uint32_t bits,
                          int wmma, int is_b, uint32_t *lane, uint32_t *position) {
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
