/* Images that are known to load: this very one did before, on a device and a driver like these. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "gpuferry/frames.h"

/* Whether the image of this hash did, in this process or, as its user's cache says, in another. */
bool gf_proof_have(const uint8_t hash[GF_HASH_SIZE], const struct gf_device *device);
/* It has. */
void gf_proof_add(const uint8_t hash[GF_HASH_SIZE], const struct gf_device *device);
