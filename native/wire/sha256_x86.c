/* SHA-256 by the processor's own instructions, where it has them: several times as fast. */
#include "wire/sha256_block.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

bool gf_sha256_has_instructions(void) {
    unsigned a, b, c, d;
    bool sha = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
    return sha && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3);
}

/* The state lies as ABEF and CDGH in two registers; each step does four rounds and makes four words more. */
__attribute__((target("sha,sse4.1,ssse3"))) void gf_sha256_instructions(uint32_t state[8],
                                                                        const uint8_t *data, size_t blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
    __m128i dcba = _mm_loadu_si128((const __m128i *)&state[0]);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)&state[4]);
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; blocks > 0; blocks--, data += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i now = w[i % 4];
            __m128i sum = _mm_add_epi32(now, _mm_loadu_si128((const __m128i *)&gf_sha256_constants[4 * i]));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) { /* the words of four steps on */
                __m128i last = w[(i + 3) % 4];
                __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]),
                                             _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
                w[i % 4] = _mm_sha256msg2_epu32(next, last);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)&state[0], _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)&state[4], _mm_alignr_epi8(dchg, feba, 8));
}
#else
bool gf_sha256_has_instructions(void) {
    return false;
}

void gf_sha256_instructions(uint32_t state[8], const uint8_t *data, size_t blocks) {
    gf_sha256_portable(state, data, blocks);
}
#endif
