/* SHA-256 (FIPS 180-4). */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct sim_sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
};

void sim_sha256_init(struct sim_sha256 *hash);
void sim_sha256_add(struct sim_sha256 *hash, const void *bytes, size_t size);
void sim_sha256_end(struct sim_sha256 *hash, uint8_t digest[32]);
