/* Physical memory and mappings (cuMemCreate, cuMemMap). */
#pragma once
#include "device.h"

/* Releases the pages of a mapped, page-aligned part, which reads as zero from then on. */
bool sim_vmm_discard(uint64_t base, uint64_t size);
