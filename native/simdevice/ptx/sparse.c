/* mma.sp: of A's elements, half are zeros that no lane holds. What is held is put in its places first; the
 * product is then that of dense matrices. */
#include "fp_helpers.h"
#include "fragments.h"
#include <string.h>

enum { LANES = 32, MOST_WORDS = 8 }; /* of a lane's part of A or of B */

/* Word w of lane l is words[l * lane + w * word]. */
struct fragment {
    const uint32_t *words;
    uint32_t lane, word;
};

static uint32_t word_of(struct fragment from, uint32_t lane, uint32_t word) {
    return from.words[lane * from.lane + word * from.word];
}

/* The four bits that say where in a chunk of a row its elements belong. */
static uint32_t places(struct fragment metadata, uint32_t selector, uint32_t row, uint32_t chunk, uint32_t k,
                       uint32_t bits) {
    uint32_t group = row % 8 * 4, bit = chunk * 4, lane;
    if (bits >= 16) { /* 16 bits of row r and 16 of row r + 8 */
        uint32_t halves = k * bits / 256;
        lane = group + selector * halves + bit / 16;
        bit = row / 8 * 16 + bit % 16;
    } else { /* 32 bits of a row */
        lane = group + selector * 2 + row / 8 + bit / 32 * 2;
        bit %= 32;
    }
    return word_of(metadata, lane, 0) >> bit & 15;
}

/* The dense fragment has word w of lane l at [l * step + w * stride]. */
static void spread(uint32_t m, uint32_t k, uint32_t bits, uint32_t selector, struct fragment a,
                   struct fragment metadata, uint32_t *dense, uint32_t step, uint32_t stride) {
    /* Two places of a chunk are kept, of one or, of four bits each, two elements; of one of 32 bits both. */
    uint32_t chunk = bits == 32 ? 2 : bits == 4 ? 8 : 4, kept = chunk / 2;
    for (uint32_t row = 0; row < m; row++)
        for (uint32_t held = 0; held < k / 2; held++) {
            uint32_t at = places(metadata, selector, row, held / kept, k, bits), index = held % kept;
            uint32_t second = bits == 4 ? index / 2 : index, place = at >> 2 * second & 3;
            uint32_t column = bits == 32 ? place / 2 : bits == 4 ? place * 2 + index % 2 : place;
            uint32_t lane, position;
            locate(row, held, m, k / 2, bits, 0, 0, &lane, &position);
            uint32_t value = word_of(a, lane, position * bits / 32) >> position * bits % 32;
            if (bits < 32)
                value &= (1u << bits) - 1;
            locate(row, held / kept * chunk + column, m, k, bits, 0, 0, &lane, &position);
            dense[lane * step + position * bits / 32 * stride] |= value << position * bits % 32;
        }
}

/* As sim_mma; the last word of each lane is its metadata. */
void sim_mma_sparse(uint32_t shape, uint32_t types, uint32_t flags, uint32_t lane, uint32_t words,
                    uint32_t b_word, const uint32_t *fragments, const uint32_t *c, uint32_t *d) {
    uint32_t m = shape & 255, k = (shape >> 16 & 255) * 4, bits = element_bits[types & 255];
    uint32_t b_words = words - 1 - b_word, step = 2 * b_word + b_words;
    uint32_t dense[LANES * 2 * MOST_WORDS] = {0};
    struct fragment a = {fragments, words, 1}, metadata = {fragments + words - 1, words, 1};
    spread(m, k, bits, flags >> SELECTOR & 3, a, metadata, dense, step, 1);
    for (uint32_t i = 0; i < LANES; i++)
        memcpy(dense + i * step + 2 * b_word, fragments + i * words + b_word, b_words * sizeof *dense);
    sim_mma(shape, types, flags, lane, step, 2 * b_word, dense, c, d);
}

void sim_mma_sparse_warp(uint32_t shape, uint32_t types, uint32_t flags, const uint32_t *a, const uint32_t *b,
                         const uint32_t *c, const uint32_t *metadata, uint32_t *d) {
    uint32_t m = shape & 255, k = (shape >> 16 & 255) * 4, bits = element_bits[types & 255];
    uint32_t dense[LANES * MOST_WORDS] = {0};
    spread(m, k, bits, flags >> SELECTOR & 3, (struct fragment){a, 1, LANES},
           (struct fragment){metadata, 1, LANES}, dense, 1, LANES);
    sim_mma_warp(shape, types, flags, dense, b, c, d);
}
