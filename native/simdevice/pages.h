/* Pages of the process that serve as device memory. */
#pragma once
#include "sim.h"

#define SIM_PAGE 4096u

/* Zeroed private pages, readable and writable; 0 when there are none. `size` is a multiple of SIM_PAGE.
 * Addresses come from a region of their own and are reused as late as possible, so that a use after free is a
 * fault. */
uint64_t sim_pages_new(uint64_t size);
/* The same at that very address; false if something is there. */
bool sim_pages_new_at(uint64_t base, uint64_t size);
void sim_pages_free(uint64_t base, uint64_t size);
/* Lets pages be used, or makes their use a fault; what they hold stays. */
bool sim_pages_allow(uint64_t base, uint64_t size, bool allowed);
/* For memory that is about to be overwritten: what is missing of it becomes huge pages where the system can,
 * because a fault for each small page takes several times as long as the writing. */
void sim_pages_expect(uint64_t base, uint64_t size);
/* An address range without memory, at `wanted` if that is not 0 and free there. */
uint64_t sim_pages_reserve(uint64_t size, uint64_t alignment, uint64_t wanted);
