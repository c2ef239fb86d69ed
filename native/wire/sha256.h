/* SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): the handshake's proofs and the identity of images. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GF_SHA256_SIZE  32
#define GF_SHA256_BLOCK 64

struct gf_sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[GF_SHA256_BLOCK];
};

void gf_sha256_init(struct gf_sha256 *hash);
void gf_sha256_update(struct gf_sha256 *hash, const void *data, size_t size);
void gf_sha256_final(struct gf_sha256 *hash, uint8_t digest[GF_SHA256_SIZE]);

/* All at once. */
void gf_sha256(const void *data, size_t size, uint8_t digest[GF_SHA256_SIZE]);

struct gf_hmac {
    struct gf_sha256 inner, outer;
};

void gf_hmac_init(struct gf_hmac *hmac, const void *key, size_t size);
void gf_hmac_update(struct gf_hmac *hmac, const void *data, size_t size);
void gf_hmac_final(struct gf_hmac *hmac, uint8_t digest[GF_SHA256_SIZE]);

/* Compares in constant time; non-zero if equal. */
int gf_digest_equal(const uint8_t a[GF_SHA256_SIZE], const uint8_t b[GF_SHA256_SIZE]);

#ifdef __cplusplus
}
#endif
