#include "wire/sha256.h"

#include <stdatomic.h>
#include <string.h>

#include "wire/sha256_block.h"

/* First 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const uint32_t gf_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, unsigned n) {
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t choice = (e & f) ^ (~e & g);
        uint32_t t1 = h + s1 + choice + gf_sha256_constants[i] + w[i];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + s0 + majority;
    }
    const uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) {
        state[i] += after[i];
    }
}

void gf_sha256_portable(uint32_t state[8], const uint8_t *data, size_t blocks) {
    for (; blocks > 0; blocks--, data += GF_SHA256_BLOCK) {
        compress(state, data);
    }
}

/* The processor is asked once; who asks at the same time gets the same answer. */
static void compress_all(uint32_t state[8], const uint8_t *data, size_t blocks) {
    static _Atomic int instructions = -1;
    int known = atomic_load_explicit(&instructions, memory_order_relaxed);
    if (known < 0) {
        known = gf_sha256_has_instructions();
        atomic_store_explicit(&instructions, known, memory_order_relaxed);
    }
    (known ? gf_sha256_instructions : gf_sha256_portable)(state, data, blocks);
}

void gf_sha256_init(struct gf_sha256 *hash) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, initial, sizeof initial);
    hash->length = 0;
}

void gf_sha256_update(struct gf_sha256 *hash, const void *data, size_t size) {
    const uint8_t *in = data;
    size_t fill = hash->length % GF_SHA256_BLOCK;
    hash->length += size;
    if (fill > 0) {
        size_t part = GF_SHA256_BLOCK - fill < size ? GF_SHA256_BLOCK - fill : size;
        memcpy(hash->block + fill, in, part);
        if (fill + part < GF_SHA256_BLOCK) {
            return;
        }
        compress_all(hash->state, hash->block, 1);
        in += part;
        size -= part;
    }
    compress_all(hash->state, in, size / GF_SHA256_BLOCK);
    if (size % GF_SHA256_BLOCK > 0) {
        memcpy(hash->block, in + size / GF_SHA256_BLOCK * GF_SHA256_BLOCK, size % GF_SHA256_BLOCK);
    }
}

void gf_sha256_final(struct gf_sha256 *hash, uint8_t digest[GF_SHA256_SIZE]) {
    uint64_t bits = hash->length * 8;
    uint8_t padding[GF_SHA256_BLOCK + 8] = {0x80};
    size_t fill = hash->length % GF_SHA256_BLOCK;
    size_t size = (fill < 56 ? 56 : 120) - fill;
    for (int i = 0; i < 8; i++) {
        padding[size + i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    gf_sha256_update(hash, padding, size + 8);
    for (int i = 0; i < GF_SHA256_SIZE; i++) {
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void gf_sha256(const void *data, size_t size, uint8_t digest[GF_SHA256_SIZE]) {
    struct gf_sha256 hash;
    gf_sha256_init(&hash);
    gf_sha256_update(&hash, data, size);
    gf_sha256_final(&hash, digest);
}

void gf_hmac_init(struct gf_hmac *hmac, const void *key, size_t size) {
    uint8_t block[GF_SHA256_BLOCK] = {0}, pad[GF_SHA256_BLOCK];
    if (size > sizeof block) {
        gf_sha256_init(&hmac->inner);
        gf_sha256_update(&hmac->inner, key, size);
        gf_sha256_final(&hmac->inner, block);
    } else if (size > 0) {
        memcpy(block, key, size);
    }
    for (size_t i = 0; i < sizeof block; i++) {
        pad[i] = block[i] ^ 0x36;
    }
    gf_sha256_init(&hmac->inner);
    gf_sha256_update(&hmac->inner, pad, sizeof pad);
    for (size_t i = 0; i < sizeof block; i++) {
        pad[i] = block[i] ^ 0x5c;
    }
    gf_sha256_init(&hmac->outer);
    gf_sha256_update(&hmac->outer, pad, sizeof pad);
}

void gf_hmac_update(struct gf_hmac *hmac, const void *data, size_t size) {
    gf_sha256_update(&hmac->inner, data, size);
}

void gf_hmac_final(struct gf_hmac *hmac, uint8_t digest[GF_SHA256_SIZE]) {
    gf_sha256_final(&hmac->inner, digest);
    gf_sha256_update(&hmac->outer, digest, GF_SHA256_SIZE);
    gf_sha256_final(&hmac->outer, digest);
}

int gf_digest_equal(const uint8_t a[GF_SHA256_SIZE], const uint8_t b[GF_SHA256_SIZE]) {
    uint8_t difference = 0;
    for (int i = 0; i < GF_SHA256_SIZE; i++) {
        difference |= (uint8_t)(a[i] ^ b[i]);
    }
    return difference == 0;
}
