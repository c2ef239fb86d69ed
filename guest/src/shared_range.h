/* The pages of one range that program and device share: which of them who may have written, and their way to
 * and from the device. All of it with the lock of shared.c held. */
#pragma once
#include "shared.h"

struct gf_range {
    struct gf_shared shared;
    uint64_t owner;          /* the context in which it is sent and fetched */
    uint64_t pages, present; /* present: pages that are not away */
    uint8_t *state;
    unsigned users; /* of memory that came with modules, and ends with them; 0: its owner's, of the window */
    bool lent;      /* to a system call, since the device was last given work or waited for */
    uint64_t begun; /* which of all pages that the program began to write the last of these was; 0: none */
    uint64_t begun_page;
};

enum gf_page {
    GF_AWAY,  /* the device may have written it: no access */
    GF_CLEAN, /* as on the device: may be read */
    GF_DIRTY, /* the program may have written it */
    GF_FRESH, /* likewise, and it is zero on the device */
};

#define GF_PAGE 4096ull

/* For memory whose pages are all as `page` says; NULL: no memory. */
struct gf_range *gf_range_new(const struct gf_shared *shared, uint64_t owner, enum gf_page page);
void gf_range_free(struct gf_range *range);
/* Address of the first page; the memory may begin within it. */
uint64_t gf_range_base(const struct gf_range *range);
bool gf_range_holds(const struct gf_range *range, uint64_t address);

/* Our own calls are made in the context of the memory, whatever is current here. */
uint32_t gf_range_enter(const struct gf_range *range);
void gf_range_leave(uint32_t current);

/* Sends what the program wrote in these pages: what it writes from here on is noticed again. True: something
 * was sent. */
bool gf_range_flush(struct gf_range *range, uint64_t first, uint64_t end_page, uint64_t stream);
/* Nothing of it may be touched without a fault. */
void gf_range_take_away(struct gf_range *range);
/* Whether a page may be touched. */
bool gf_range_may(const struct gf_range *range, uint64_t page, bool write);
/* A page that is not away may be touched from here on. False: the process has as many areas of memory as it
 * may have, so pages beside each other cannot have different rights. */
bool gf_range_reach(struct gf_range *range, uint64_t page, bool write);

/* Pages of a range, from the first to before the last; several parts follow each other without a gap. */
struct gf_part {
    struct gf_range *range;
    uint64_t first, last;
};

#define GF_PARTS_MAX 64 /* pages that are brought at once, too */

/* What is away from a page on, within its range. */
unsigned gf_parts_behind(struct gf_range *range, uint64_t page, struct gf_part parts[GF_PARTS_MAX]);
/* What is away around a page of the range with this index, of all that lie beside each other. */
unsigned gf_parts_around(struct gf_range **ranges, size_t count, size_t index, uint64_t page,
                         struct gf_part parts[GF_PARTS_MAX]);
/* Brings them: they may be read from here on. False: as above. */
bool gf_parts_fetch(const struct gf_part *parts, unsigned count, uint64_t stream);
