/* Physical memory and mappings (cuMemCreate, cuMemMap). */
#pragma once
#include "device.h"
#include "range.h"

/* Releases the pages of a mapped, page-aligned part, which reads as zero from then on. */
bool sim_vmm_discard(uint64_t base, uint64_t size);
/* What the device with this ordinal may do there, as cuMemSetAccess said. */
CUmemAccess_flags sim_mapping_access(const struct sim_range *mapping, int ordinal);
