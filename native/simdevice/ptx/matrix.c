/* Matrix multiplication of a warp, D = A * B + C: one lane's part, from the fragments of all lanes, or all of
 * it. */
#include "fp_helpers.h"
#include "fragments.h"
#include <math.h>
#include <string.h>

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
    if (type == E2M1) /* in the middle of its byte */
        bits = bits >> 2 & 15;
    else if (type == E2M3 || type == E3M2)
        bits &= 63;
    return sim_fp_decode((uint32_t)bits, type);
}

static double fused(double a, double b, double sum, uint32_t flags) {
    uint32_t mode = flags >> MODE & 3;
    return mode ? sim_fp_fma_f64(a, b, sum, mode) : fma(a, b, sum);
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
        uint64_t before = raw(c, i, element_bits[c_type]);
        /* Each product of doubles and its addition is one operation, of which C is a part. */
        double sum = a_type == F64 ? decode(before, F64) : 0;
        int64_t total = 0;
        for (uint32_t inner = 0; inner < k; inner++) {
            uint32_t a_lane, a_position, b_lane, b_position;
            locate(row, inner, m, k, a_bits, wmma, 0, &a_lane, &a_position);
            locate(column, inner, n, k, b_bits, wmma, 1, &b_lane, &b_position);
            uint64_t a = raw(fragments + a_lane * words, a_position, a_bits);
            uint64_t b = raw(fragments + b_lane * words + b_word, b_position, b_bits);
            if (a_type == F64)
                sum = fused(decode(a, a_type), decode(b, b_type), sum, flags);
            else if (floating)
                sum += decode(a, a_type) * decode(b, b_type);
            else if (a_type == B1)
                total += flags & XOR ? (int64_t)(a ^ b) : (int64_t)(a & b);
            else
                total += integer(a, a_type) * integer(b, b_type);
        }
        if (a_type == F64)
            put_float(d, i, F64, sum);
        else if (floating)
            put_float(d, i, d_type, decode(before, c_type) + sum);
        else
            put_integer(d, i, integer(before, c_type) + total, flags & SATURATE);
    }
}

enum { LANES = 32, MOST = 4096, VECTOR = 8 };

/* Elements in double precision, which holds the products of all but F64 exactly. */
typedef double vector __attribute__((vector_size(VECTOR * sizeof(double))));

struct operands {
    _Alignas(vector) double a[MOST]; /* m x k */
    _Alignas(vector) double b[MOST]; /* k x n */
    _Alignas(vector) double d[MOST]; /* m x n, without C */
};

static double from_half(uint32_t bits) {
    if ((bits & 0x7c00) == 0x7c00)
        return sim_fp_decode(bits, F16);
    if ((bits & 0x7c00) == 0) {
        double small = (double)(bits & 0x3ff) * 0x1p-24;
        return bits & 0x8000 ? -small : small;
    }
    uint64_t word = (uint64_t)(bits & 0x7fff) << 42;
    double value;
    memcpy(&value, &word, sizeof value);
    value *= 0x1p1008; /* from the exponent of a half */
    return bits & 0x8000 ? -value : value;
}

static double element(uint64_t bits, enum element type) {
    if (type == F16)
        return from_half((uint32_t)bits);
    return type <= F64 ? decode(bits, type) : (double)integer(bits, type);
}

/* A word of each lane of a fragment, and the word behind it where an element has 64 bits. */
static uint64_t part(const uint32_t *fragment, uint32_t position, uint32_t lane, uint32_t bits) {
    if (bits == 64)
        return fragment[2 * position * LANES + lane] | (uint64_t)fragment[(2 * position + 1) * LANES + lane]
                                                           << 32;
    uint32_t first = position * bits, word = fragment[first / 32 * LANES + lane] >> first % 32;
    return bits == 32 ? word : word & ((1u << bits) - 1);
}

/* A fragment as a matrix: element (row, inner) at row * along + inner * across. */
static inline __attribute__((always_inline)) void unpack_of(enum element type, double *to,
                                                            const uint32_t *fragment, uint32_t rows,
                                                            uint32_t depth, int wmma, int is_b,
                                                            uint32_t along, uint32_t across) {
    uint32_t bits = element_bits[type], each = bits >= 32 ? 1 : 32 / bits, count = rows * depth / LANES;
    if (wmma) {
        uint32_t at_row = 0, at_inner = 0;
        for (uint32_t lane = 0; lane < LANES; lane++)
            for (uint32_t position = 0; position < count; position++) {
                to[at_row * along + at_inner * across] = element(part(fragment, position, lane, bits), type);
                if (++at_inner == depth) {
                    at_inner = 0;
                    at_row++;
                }
            }
        return;
    }
    for (uint32_t position = 0; position < count; position++) {
        uint32_t word = position / each, block = is_b ? word : word / (rows / 8);
        uint32_t row = is_b ? 0 : word % (rows / 8) * 8, inner = block * 4 * each + position % each;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            double value = element(part(fragment, position, lane, bits), type);
            to[(row + lane / 4) * along + (inner + lane % 4 * each) * across] = value;
        }
    }
}

/* The types that much is multiplied of have loops of their own. */
static void unpack(double *to, const uint32_t *fragment, uint32_t rows, uint32_t depth, enum element type,
                   int wmma, int is_b, uint32_t along, uint32_t across) {
#define UNPACK(of) unpack_of(of, to, fragment, rows, depth, wmma, is_b, along, across)
    if (type == F16)
        UNPACK(F16);
    else if (type == BF16)
        UNPACK(BF16);
    else if (type == TF32)
        UNPACK(TF32);
    else if (type == S8)
        UNPACK(S8);
    else
        UNPACK(type);
#undef UNPACK
}

#ifdef __SANITIZE_THREAD__ /* the loader chooses among clones before TSan can run what chooses */
#define FOR_EACH_PROCESSOR
#else
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

/* Sums in the order of `inner`, as for one lane, several rows at once: each waits for its own sum only. */
FOR_EACH_PROCESSOR static void multiply(struct operands *o, uint32_t m, uint32_t n, uint32_t k) {
    enum { ROWS = 4 }; /* of which there are always eight */
    for (uint32_t row = 0; row < m; row += ROWS)
        for (uint32_t column = 0; column < n; column += VECTOR) {
            vector sums[ROWS] = {{0}};
            const double *a = o->a + row * k, *b = o->b + column;
            for (uint32_t inner = 0; inner < k; inner++) {
                vector with;
                memcpy(&with, b + inner * n, sizeof with);
                for (uint32_t i = 0; i < ROWS; i++)
                    sums[i] += a[i * k + inner] * with;
            }
            for (uint32_t i = 0; i < ROWS; i++)
                memcpy(&o->d[(row + i) * n + column], &sums[i], sizeof sums[i]);
        }
}

/* An element of D, of which C is `sum`. */
static double chain(const struct operands *o, uint32_t at, uint32_t n, uint32_t k, double sum,
                    uint32_t flags) {
    for (uint32_t inner = 0; inner < k; inner++)
        sum = fused(o->a[at / n * k + inner], o->b[inner * n + at % n], sum, flags);
    return sum;
}

/* Of bits a ^ b is a + b - 2ab. */
static void add_ones(struct operands *o, uint32_t m, uint32_t n, uint32_t k) {
    for (uint32_t i = 0; i < m * n; i++) {
        double ones = 0;
        for (uint32_t inner = 0; inner < k; inner++)
            ones += o->a[i / n * k + inner] + o->b[inner * n + i % n];
        o->d[i] = ones - 2 * o->d[i];
    }
}

void sim_mma_warp(uint32_t shape, uint32_t types, uint32_t flags, const uint32_t *a, const uint32_t *b,
                  const uint32_t *c, uint32_t *d) {
    uint32_t m = shape & 255, n = shape >> 8 & 255, k = (shape >> 16 & 255) * 4, outputs = m * n / LANES;
    enum element a_type = types & 255, b_type = types >> 8 & 255, c_type = types >> 16 & 255,
                 d_type = types >> 24;
    int wmma = flags & WMMA;
    struct operands o;
    unpack(o.a, a, m, k, a_type, wmma, 0, k, 1);
    unpack(o.b, b, n, k, b_type, wmma, 1, 1, n);
    if (a_type != F64)
        multiply(&o, m, n, k);
    if (a_type == B1 && flags & XOR)
        add_ones(&o, m, n, k);
    uint32_t words = outputs * element_bits[d_type] / 32;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t result[MOST / LANES * 2];
        for (uint32_t i = 0; i < outputs; i++) {
            uint32_t at = wmma ? lane * outputs + i : (lane / 4 + i / 2 * 8) * n + lane % 4 * 2 + i % 2;
            double sum = o.d[at];
            uint64_t before = part(c, i, lane, element_bits[c_type]);
            if (a_type == F64)
                put_float(result, i, F64, chain(&o, at, n, k, decode(before, F64), flags));
            else if (a_type <= F64)
                put_float(result, i, d_type, decode(before, c_type) + sum);
            else
                put_integer(result, i, integer(before, c_type) + (int64_t)sum, flags & SATURATE);
        }
        for (uint32_t word = 0; word < words; word++)
            d[word * LANES + lane] = result[word];
    }
}
