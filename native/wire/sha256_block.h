/* What a SHA-256 is made of: whole blocks into the state, in plain C or by the processor's instructions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const uint32_t gf_sha256_constants[64];

void gf_sha256_portable(uint32_t state[8], const uint8_t *data, size_t blocks);
/* Whether this processor has instructions for it; then: */
bool gf_sha256_has_instructions(void);
void gf_sha256_instructions(uint32_t state[8], const uint8_t *data, size_t blocks);
