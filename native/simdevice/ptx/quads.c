/* mma.m8n8k4 of halves, as Volta has it: four products, each of eight lanes, l..l+3 and l+16..l+19. */
#include "fp_helpers.h"
#include <string.h>

enum { A_COLUMNS = 1, B_ROWS = 2, C_SINGLE = 4, D_SINGLE = 8 }; /* how A and B lie, what C and D are */
enum { B_WORD = 2, C_WORD = 4, LANES = 32, SIZE = 8, DEPTH = 4 };

/* Word w of lane l is words[l * lane + w * word]. */
struct fragments {
    const uint32_t *words;
    uint32_t lane, word;
};

static uint32_t half_of(struct fragments from, uint32_t lane, uint32_t word, uint32_t position) {
    uint32_t both = from.words[lane * from.lane + (word + position / 2) * from.word];
    return both >> position % 2 * 16 & 0xffff;
}

/* An element of A, or of B transposed. A lane has a row, or of four rows an element each. */
static double factor(struct fragments from, uint32_t first, uint32_t word, uint32_t row, uint32_t inner,
                     int across) {
    uint32_t upper = row / 4 * 16, lane = first + upper + (across ? inner : row % 4);
    return (double)sim_fp_decode(half_of(from, lane, word, across ? row % 4 : inner), 0);
}

static double addend(struct fragments from, uint32_t first, uint32_t row, uint32_t column, int single) {
    if (!single)
        return (double)sim_fp_decode(half_of(from, first + row / 4 * 16 + row % 4, C_WORD, column), 0);
    uint32_t lane = first + row / 4 * 16 + (row & 1) + (column & 2);
    uint32_t position = (row & 2) + (column & 4) + (column & 1);
    float value;
    memcpy(&value, from.words + lane * from.lane + (C_WORD + position) * from.word, sizeof value);
    return (double)value;
}

static void one_lane(uint32_t how, uint32_t lane, struct fragments from, uint32_t *d) {
    uint32_t first = lane % 16 / 4 * 4, upper = lane / 16 * 4;
    for (uint32_t i = 0; i < SIZE; i++) {
        uint32_t row = upper + lane % 4, column = i;
        if (how & D_SINGLE) {
            row = upper + (lane & 1) + (i & 2);
            column = (i & 4) + (lane & 2) + (i & 1);
        }
        double sum = addend(from, first, row, column, how & C_SINGLE);
        for (uint32_t inner = 0; inner < DEPTH; inner++)
            sum += factor(from, first, 0, row, inner, how & A_COLUMNS) *
                   factor(from, first, B_WORD, column, inner, how & B_ROWS);
        if (how & D_SINGLE) {
            float single = (float)sum;
            if (single != single)
                d[i] = 0x7fffffff;
            else
                memcpy(d + i, &single, sizeof single);
        } else {
            uint16_t half = (uint16_t)sim_fp_encode(sum, 0, 0, 0);
            memcpy((uint16_t *)d + i, &half, sizeof half);
        }
    }
}

void sim_mma_quads(uint32_t how, uint32_t lane, uint32_t words, const uint32_t *fragments, uint32_t *d) {
    one_lane(how, lane, (struct fragments){fragments, words, 1}, d);
}

void sim_mma_quads_warp(uint32_t how, const uint32_t *fragments, uint32_t *d) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t result[SIZE];
        one_lane(how, lane, (struct fragments){fragments, 1, LANES}, result);
        for (uint32_t word = 0; word < (how & D_SINGLE ? SIZE : SIZE / 2); word++)
            d[word * LANES + lane] = result[word];
    }
}
