#include "ranges.h"

#include <stdlib.h>
#include <string.h>

size_t gf_ranges_place(const struct gf_ranges *ranges, uint64_t address) {
    size_t first = 0, last = ranges->count;
    while (first < last) {
        size_t middle = (first + last) / 2;
        const struct gf_range *range = ranges->at[middle];
        if (gf_range_base(range) + range->pages * GF_PAGE <= address) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

struct gf_range *gf_ranges_find(const struct gf_ranges *ranges, uint64_t address) {
    size_t place = gf_ranges_place(ranges, address);
    return place < ranges->count && gf_range_holds(ranges->at[place], address) ? ranges->at[place] : NULL;
}

static bool make_room(struct gf_ranges *ranges) {
    if (ranges->count < ranges->room) {
        return true;
    }
    size_t room = ranges->room == 0 ? 16 : ranges->room * 2;
    struct gf_range **more = realloc(ranges->at, room * sizeof *more);
    if (more == NULL) {
        return false;
    }
    ranges->at = more;
    ranges->room = room;
    return true;
}

bool gf_ranges_add(struct gf_ranges *ranges, struct gf_range *range) {
    if (!make_room(ranges)) {
        return false;
    }
    struct gf_range **place = ranges->at + gf_ranges_place(ranges, gf_range_base(range));
    struct gf_range **end = ranges->at + ranges->count;
    memmove(place + 1, place, (size_t)(end - place) * sizeof *place);
    *place = range;
    ranges->count++;
    return true;
}

void gf_ranges_remove(struct gf_ranges *ranges, const struct gf_range *range) {
    struct gf_range **place = ranges->at + gf_ranges_place(ranges, gf_range_base(range));
    struct gf_range **end = ranges->at + ranges->count;
    memmove(place, place + 1, (size_t)(end - place - 1) * sizeof *place);
    ranges->count--;
}
