#include "fp_helpers.h"
#include <emmintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The rounding mode is changed around one operation. The volatile operands keep the compiler from computing
 * it early, late, or itself. */
static inline unsigned round_begin(uint32_t mode) {
    unsigned saved = _mm_getcsr();
    _mm_setcsr((saved & ~0x6000u) | mode << 13);
    return saved;
}

#define ROUNDED(type, expression)                                                                            \
    unsigned saved = round_begin(mode);                                                                      \
    volatile type result = (expression);                                                                     \
    _mm_setcsr(saved);                                                                                       \
    return result

#define BINARY(name, type, operator)                                                                         \
    type name(type a, type b, uint32_t mode) {                                                               \
        volatile type x = a, y = b;                                                                          \
        ROUNDED(type, x operator y);                                                                         \
    }

BINARY(sim_fp_add_f32, float, +)
BINARY(sim_fp_sub_f32, float, -)
BINARY(sim_fp_mul_f32, float, *)
BINARY(sim_fp_div_f32, float, /)
BINARY(sim_fp_add_f64, double, +)
BINARY(sim_fp_sub_f64, double, -)
BINARY(sim_fp_mul_f64, double, *)
BINARY(sim_fp_div_f64, double, /)

float sim_fp_fma_f32(float a, float b, float c, uint32_t mode) {
    volatile float x = a, y = b, z = c;
    ROUNDED(float, fmaf(x, y, z));
}

double sim_fp_fma_f64(double a, double b, double c, uint32_t mode) {
    volatile double x = a, y = b, z = c;
    ROUNDED(double, fma(x, y, z));
}

float sim_fp_sqrt_f32(float a, uint32_t mode) {
    volatile float x = a;
    ROUNDED(float, _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))));
}

double sim_fp_sqrt_f64(double a, uint32_t mode) {
    volatile double x = a;
    ROUNDED(double, _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set_sd(x))));
}

float sim_fp_narrow_f32(double a, uint32_t mode) {
    volatile double x = a;
    ROUNDED(float, (float)x);
}

/* Only the signed conversion is an instruction; the unsigned ones are built on it here because the compiler's
 * own sequence for large values rounds to nearest. */
static double narrow_u64(uint64_t value, unsigned significant) {
    /* Keeps the leading bits and makes the lowest of them odd if anything below is lost: later rounding sees
     * it. */
    unsigned width = 64 - (unsigned)__builtin_clzll(value | 1);
    if (width <= significant)
        return (double)(int64_t)value;
    unsigned drop = width - significant;
    uint64_t kept = value >> drop;
    if (value & ((UINT64_C(1) << drop) - 1))
        kept |= 1;
    return ldexp((double)(int64_t)kept, (int)drop);
}

float sim_fp_from_u64_f32(uint64_t a, uint32_t mode) {
    return sim_fp_narrow_f32(narrow_u64(a, 50), mode);
}

float sim_fp_from_s64_f32(int64_t a, uint32_t mode) {
    if (a >= 0)
        return sim_fp_from_u64_f32((uint64_t)a, mode);
    return sim_fp_narrow_f32(-narrow_u64(0 - (uint64_t)a, 50), mode);
}

double sim_fp_from_s64_f64(int64_t a, uint32_t mode) {
    volatile int64_t x = a;
    ROUNDED(double, (double)x);
}

double sim_fp_from_u64_f64(uint64_t a, uint32_t mode) {
    if (a >> 63 == 0)
        return sim_fp_from_s64_f64((int64_t)a, mode);
    /* 53 bits are left of 63: the sticky bit is far below them. */
    return 2 * sim_fp_from_s64_f64((int64_t)(a >> 1 | (a & 1)), mode);
}

struct format {
    int exponent_bits, mantissa_bits, bias;
    uint32_t nan, infinity, largest;
};

/* e4m3 has no infinity: its format says the NaN. e2m1, e2m3 and e3m2, the last, have neither: what is none of
 * their numbers becomes the largest. */
static const struct format formats[] = {
    {5, 10, 15, 0x7fff, 0x7c00, 0x7bff},
    {8, 7, 127, 0x7fff, 0x7f80, 0x7f7f},
    {4, 3, 7, 0x7f, 0x7f, 0x7e},
    {5, 2, 15, 0x7f, 0x7c, 0x7b},
    {8, 10, 127, 0x3ffff, 0x3fc00, 0x3fbff},
    {2, 1, 1, 7, 7, 7},
    {2, 3, 1, 0x1f, 0x1f, 0x1f},
    {3, 2, 3, 0x1f, 0x1f, 0x1f},
};

enum { FORMAT_F16, FORMAT_BF16, FORMAT_E4M3, FORMAT_E5M2, FORMAT_TF32 };

static int round_up(uint64_t kept, uint64_t lost, uint64_t half, int negative, uint32_t mode) {
    switch (mode) {
    case 0:
        return lost > half || (lost == half && (kept & 1));
    case 1:
        return negative && lost;
    case 2:
        return !negative && lost;
    case 4:
        return lost >= half;
    default:
        return 0;
    }
}

static uint32_t overflow(const struct format *f, int negative, uint32_t mode, uint32_t finite) {
    int away = mode == 0 || mode == 4 || (mode == 1 && negative) || (mode == 2 && !negative);
    return away && !finite ? f->infinity : f->largest;
}

uint32_t sim_fp_encode(double value, uint32_t format, uint32_t mode, uint32_t finite) {
    const struct format *f = &formats[format];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int negative = (int)(bits >> 63);
    int exponent = (int)(bits >> 52 & 2047);
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    uint32_t magnitude;
    if (exponent == 2047 && mantissa) {
        magnitude = f->nan;
        negative = 0;
    } else if (exponent == 2047) {
        magnitude = finite ? f->largest : f->infinity;
    } else if (exponent == 0 && mantissa == 0) {
        magnitude = 0;
    } else {
        /* Double's own subnormals are far below every format: they only matter as a sticky bit. */
        int scale = exponent ? exponent - 1023 : -1022;
        if (exponent)
            mantissa |= UINT64_C(1) << 52;
        int target = scale + f->bias;
        int drop = 52 - f->mantissa_bits + (target < 1 ? 1 - target : 0);
        uint64_t kept = 0, lost = mantissa, half = UINT64_MAX;
        if (drop < 62) {
            kept = mantissa >> drop;
            lost = mantissa & ((UINT64_C(1) << drop) - 1);
            half = UINT64_C(1) << (drop - 1);
        }
        kept += (uint64_t)round_up(kept, lost, half, negative, mode);
        /* A carry out of the mantissa steps the exponent, out of a subnormal too. */
        uint64_t joined = target < 1 ? kept : kept + ((uint64_t)(target - 1) << f->mantissa_bits);
        magnitude = joined > f->largest ? overflow(f, negative, mode, finite) : (uint32_t)joined;
    }
    uint32_t sign = (uint32_t)negative << (f->exponent_bits + f->mantissa_bits);
    uint32_t result = magnitude | sign;
    return format == FORMAT_TF32 ? result << 13 : result;
}

float sim_fp_decode(uint32_t bits, uint32_t format) {
    const struct format *f = &formats[format];
    if (format == FORMAT_TF32)
        bits >>= 13;
    uint32_t sign = bits >> (f->exponent_bits + f->mantissa_bits) & 1;
    uint32_t magnitude = bits & ((1u << (f->exponent_bits + f->mantissa_bits)) - 1);
    float value;
    if (magnitude > f->largest)
        value = magnitude == f->infinity && format != FORMAT_E4M3 ? INFINITY : NAN;
    else {
        int exponent = (int)(magnitude >> f->mantissa_bits);
        uint32_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
        if (exponent)
            mantissa |= 1u << f->mantissa_bits;
        /* a power of two is a normal number in double precision, whatever the format */
        int power = (exponent ? exponent : 1) - f->bias - f->mantissa_bits;
        uint64_t bits_of_scale = (uint64_t)(power + 1023) << 52;
        double scale;
        memcpy(&scale, &bits_of_scale, sizeof scale);
        value = (float)(mantissa * scale);
    }
    return sign ? -value : value;
}

/* a*b is exact in double for both types; the sum is rounded to odd, so that rounding it again to the narrow
 * type is right. */
static double fma_odd(double a, double b, double c) {
    double product = a * b;
    double sum = product + c;
    double part = sum - product;
    double lost = (product - (sum - part)) + (c - part);
    if (lost != 0 && isfinite(sum)) {
        int64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if (!(bits & 1)) {
            bits += (lost > 0) == (sum > 0) ? 1 : -1;
            memcpy(&sum, &bits, sizeof bits);
        }
    }
    return sum;
}

uint16_t sim_fp_fma_f16(uint16_t a, uint16_t b, uint16_t c) {
    double x = sim_fp_decode(a, FORMAT_F16), y = sim_fp_decode(b, FORMAT_F16),
           z = sim_fp_decode(c, FORMAT_F16);
    return (uint16_t)sim_fp_encode(fma_odd(x, y, z), FORMAT_F16, 0, 0);
}

uint16_t sim_fp_fma_bf16(uint16_t a, uint16_t b, uint16_t c) {
    double x = sim_fp_decode(a, FORMAT_BF16), y = sim_fp_decode(b, FORMAT_BF16),
           z = sim_fp_decode(c, FORMAT_BF16);
    return (uint16_t)sim_fp_encode(fma_odd(x, y, z), FORMAT_BF16, 0, 0);
}

/* The approximations are as good as libm's but where cuda_fp16.hpp tells more of a GPU's: behind them hexp,
 * hexp10 and hlog correct a few halves, so there a GPU's are on the other side of what is halfway between two
 * of these. All are as near to the function as PTX promises. */
struct approximation {
    uint32_t of, is;
};

static float approximated(const struct approximation *known, size_t count, float a, float value) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    for (size_t i = 0; i < count; i++)
        if (known[i].of == bits)
            memcpy(&value, &known[i].is, sizeof value);
    return value;
}

float sim_fp_ex2(float a) {
    static const struct approximation known[] = {{0x3f8158fb, 0x4000f000}, {0xbbc49dda, 0x3f7ef000},
                                                 {0xbc10b624, 0x3f7e6fff}, {0xbd993953, 0x3f731000},
                                                 {0xc0717899, 0x3d95d000}, {0xc088f743, 0x3d52d000}};
    float value = exp2f(a);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* Each is next to a half, or halfway between two. */
    bool near = ((bits + 2) & 0xfff) < 5;
    return near ? approximated(known, sizeof known / sizeof *known, a, value) : value;
}

float sim_fp_lg2(float a) {
    static const struct approximation known[] = {{0x3ac1a000, 0xc1167230},
                                                 {0x3f7fc000, 0xbab8c151},
                                                 {0x3f816000, 0x3c7c8fd3},
                                                 {0x440a2000, 0x4111c1dd}};
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    bool half = (bits & 0x1fff) == 0; /* the number itself */
    return half ? approximated(known, sizeof known / sizeof *known, a, log2f(a)) : log2f(a);
}

uint64_t sim_int_clmul(uint64_t a, uint64_t b, uint32_t high) {
    uint64_t low = 0, top = 0;
    for (; b; b &= b - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(b);
        low ^= a << bit;
        top ^= bit ? a >> (64 - bit) : 0;
    }
    return high ? top : low;
}

uint32_t sim_int_fns(uint32_t mask, uint32_t base, uint32_t offset) {
    int32_t steps = (int32_t)offset;
    if (base > 31)
        return UINT32_MAX;
    if (steps == 0)
        return mask >> base & 1 ? base : UINT32_MAX;
    int direction = steps > 0 ? 1 : -1;
    uint32_t left = steps > 0 ? offset : 0 - offset;
    for (int bit = (int)base; bit >= 0 && bit < 32; bit += direction)
        if (mask >> bit & 1 && --left == 0)
            return (uint32_t)bit;
    return UINT32_MAX;
}

void sim_copy_masked(uint8_t *to, const uint8_t *from, uint64_t size, uint32_t mask) {
    for (uint64_t i = 0; i < size; i++)
        if (mask >> i % 16 & 1)
            to[i] = from[i];
}
