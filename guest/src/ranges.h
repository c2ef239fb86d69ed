/* Which memory program and device share, by address: no two ranges overlap. With the lock of shared.c
 * held. */
#pragma once
#include "shared_range.h"

struct gf_ranges {
    struct gf_range **at; /* sorted */
    size_t count, room;
};

/* The index of the first range that does not end before an address; of the one that holds it, if any does. */
size_t gf_ranges_place(const struct gf_ranges *ranges, uint64_t address);
/* The range that holds an address; NULL: none. */
struct gf_range *gf_ranges_find(const struct gf_ranges *ranges, uint64_t address);
/* False: no memory. */
bool gf_ranges_add(struct gf_ranges *ranges, struct gf_range *range);
/* Takes one out, which stays the caller's. */
void gf_ranges_remove(struct gf_ranges *ranges, const struct gf_range *range);
