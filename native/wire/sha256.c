#include "wire/sha256.h"

#include <stdatomic.h>
#include <string.h>

#include "wire/sha256_block.h"

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
