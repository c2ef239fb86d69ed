#include "shared_range.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aside.h"
#include "channel.h"
#include "guest.h"
#include "gpuferry/messages.h"
#include "log.h"
#include "wire/handle.h"
#include "wire/uncancelled.h"

#define SEND_MAX 1024

static int memory = -1; /* /proc/self/mem, which writes to pages that threads cannot touch yet */
static char bounce[GF_PARTS_MAX * GF_PAGE];
static bool failed; /* to fetch; it was said */

struct gf_range *gf_range_new(const struct gf_shared *shared, uint64_t owner, enum gf_page page) {
    uint64_t end = (shared->address + shared->size + GF_PAGE - 1) / GF_PAGE;
    uint64_t pages = end - shared->address / GF_PAGE;
    struct gf_range *range = calloc(1, sizeof *range);
    uint8_t *state = range == NULL ? NULL : malloc(pages);
    if (state == NULL) {
        free(range);
        return NULL;
    }
    memset(state, page, pages);
    *range = (struct gf_range){.shared = *shared,
                               .owner = owner,
                               .pages = pages,
                               .present = page == GF_AWAY ? 0 : pages,
                               .state = state};
    return range;
}

void gf_range_free(struct gf_range *range) {
    free(range->state);
    free(range);
}

uint64_t gf_range_base(const struct gf_range *range) {
    return range->shared.address / GF_PAGE * GF_PAGE;
}

bool gf_range_holds(const struct gf_range *range, uint64_t address) {
    return address - gf_range_base(range) < range->pages * GF_PAGE;
}

uint32_t gf_range_enter(const struct gf_range *range) {
    uint32_t current = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(range->owner) + 1;
    gf_thread.sharing = true;
    return current;
}

void gf_range_leave(uint32_t current) {
    gf_thread.context_id = current;
    gf_thread.sharing = false;
}

static bool allow(const struct gf_range *range, uint64_t first, uint64_t last, int protection) {
    return mprotect((void *)(gf_range_base(range) + first * GF_PAGE), (last - first) * GF_PAGE, protection) ==
           0;
}

static void note(struct gf_range *range, uint64_t first, uint64_t last, enum gf_page state) {
    for (uint64_t i = first; i < last; i++) {
        range->present += (range->state[i] == GF_AWAY) - (uint64_t)(state == GF_AWAY);
        range->state[i] = (uint8_t)state;
    }
}

/* False: it would take more areas with rights of their own than a process may have. Pages are as they were.
 */
static bool protect(struct gf_range *range, uint64_t first, uint64_t last, enum gf_page state,
                    int protection) {
    bool allowed = allow(range, first, last, protection);
    if (allowed) {
        note(range, first, last, state);
    }
    return allowed;
}

void gf_range_take_away(struct gf_range *range) {
    if (range->present > 0) {
        protect(range, 0, range->pages, GF_AWAY, PROT_NONE);
    }
}

/* What of some pages is the range's. */
static uint64_t extent(const struct gf_range *range, uint64_t first, uint64_t last, uint64_t *address) {
    uint64_t base = gf_range_base(range), start = base + first * GF_PAGE, end = base + last * GF_PAGE;
    uint64_t limit = range->shared.address + range->shared.size;
    /* Memory of the window goes to the end of its last page. */
    bool whole = range->users == 0;
    *address = start < range->shared.address ? range->shared.address : start;
    return (end > limit && !whole ? limit : end) - *address;
}

static bool is_zero(const char *page) {
    return page[0] == 0 && memcmp(page, page + 1, GF_PAGE - 1) == 0;
}

/* Whether a page must be sent. */
static bool differs(const struct gf_range *range, uint64_t page) {
    return range->state[page] == GF_DIRTY ||
           (range->state[page] == GF_FRESH && !is_zero((const char *)gf_range_base(range) + page * GF_PAGE));
}

static void send_pages(const struct gf_range *range, uint64_t first, uint64_t last, uint64_t stream) {
    uint64_t address, size = extent(range, first, last, &address);
    struct gf_req_sessionCopyIn request = {stream, address, size, size, 1};
    struct gf_rows rows = {(char *)address, size, size, 1};
    gf_send_rows(GF_OP_sessionCopyIn, &request, sizeof request, &rows);
}

bool gf_range_flush(struct gf_range *range, uint64_t first, uint64_t end_page, uint64_t stream) {
    bool sent = false;
    while (first < end_page && range->present > 0) {
        uint64_t last = first;
        while (last < end_page && range->state[last] >= GF_DIRTY) {
            last++;
        }
        if (last == first) {
            first++;
            continue;
        }
        bool noticed =
            allow(range, first, last, PROT_READ); /* what is written from here on; else it is sent again */
        for (uint64_t at = first; at < last;) {
            uint64_t end = at;
            while (end < last && end - at < SEND_MAX && differs(range, end)) {
                end++;
            }
            if (end > at) {
                send_pages(range, at, end, stream);
                sent = true;
            }
            at = end > at ? end : at + 1;
        }
        if (noticed) {
            note(range, first, last, GF_CLEAN);
        }
        first = last;
    }
    return sent;
}

/* No other thread may see a page before all of it is there. */
static void fill(uint64_t address, uint64_t size) {
    GF_UNCANCELLED;
    if (memory < 0) {
        memory = gf_put_aside(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    }
    if (pwrite(memory, bounce, size, (off_t)address) != (ssize_t)size) {
        uint64_t first = address / GF_PAGE * GF_PAGE;
        mprotect((void *)first, address + size - first, PROT_READ | PROT_WRITE);
        memcpy((void *)address, bounce, size);
    }
}

static uint64_t end_of_away(const struct gf_range *range, uint64_t first, uint64_t most) {
    uint64_t last = first;
    while (last < range->pages && last - first < most && range->state[last] == GF_AWAY) {
        last++;
    }
    return last;
}

static uint64_t start_of_away(const struct gf_range *range, uint64_t last, uint64_t most) {
    uint64_t first = last;
    while (first > 0 && last - first < most && range->state[first - 1] == GF_AWAY) {
        first--;
    }
    return first;
}

unsigned gf_parts_behind(struct gf_range *range, uint64_t page, struct gf_part parts[GF_PARTS_MAX]) {
    parts[0] = (struct gf_part){range, page, end_of_away(range, page, GF_PARTS_MAX)};
    return 1;
}

/* Whether one follows the other, in the same context, and all of both is memory of the window. */
static bool are_neighbours(const struct gf_range *one, const struct gf_range *other) {
    return gf_range_base(one) + one->pages * GF_PAGE == gf_range_base(other) && one->owner == other->owner &&
           one->users == 0 && other->users == 0;
}

/* Half of what may be brought lies before the page, if it can: lists are walked in both directions. */
unsigned gf_parts_around(struct gf_range **ranges, size_t count, size_t index, uint64_t page,
                         struct gf_part parts[GF_PARTS_MAX]) {
    uint64_t before = GF_PARTS_MAX / 2;
    size_t low = index;
    uint64_t first = start_of_away(ranges[low], page, before);
    before -= page - first;
    while (first == 0 && before > 0 && low > 0 && are_neighbours(ranges[low - 1], ranges[low])) {
        uint64_t pages = ranges[low - 1]->pages, from = start_of_away(ranges[low - 1], pages, before);
        if (from == pages) {
            break;
        }
        before -= pages - from;
        first = from;
        low--;
    }
    uint64_t left = GF_PARTS_MAX;
    unsigned found = 0;
    for (size_t i = low; i < count && left > 0; i++, first = 0) {
        uint64_t last = end_of_away(ranges[i], first, left);
        if (last == first || (i > low && !are_neighbours(ranges[i - 1], ranges[i]))) {
            break;
        }
        parts[found++] = (struct gf_part){ranges[i], first, last};
        left -= last - first;
        if (last < ranges[i]->pages) {
            break;
        }
    }
    return found;
}

static bool let_read(const struct gf_part *parts, unsigned count, uint64_t first, uint64_t pages) {
    bool allowed = mprotect((void *)first, pages * GF_PAGE, PROT_READ) == 0;
    for (unsigned i = 0; i < count && allowed; i++) {
        note(parts[i].range, parts[i].first, parts[i].last, GF_CLEAN);
    }
    return allowed;
}

bool gf_parts_fetch(const struct gf_part *parts, unsigned count, uint64_t stream) {
    struct gf_range *range = parts[0].range;
    uint64_t address = 0, behind, size = 0, pages = 0;
    for (unsigned i = 0; i < count; i++) {
        size += extent(parts[i].range, parts[i].first, parts[i].last, i == 0 ? &address : &behind);
        pages += parts[i].last - parts[i].first;
    }
    uint32_t current = gf_range_enter(range);
    struct gf_req_sessionCopyOut request = {stream, address, size, size, 1};
    struct gf_call call = {.op = GF_OP_sessionCopyOut, .rows = {bounce, size, size, 1}};
    CUresult result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    free(call.payload);
    if (result == CUDA_SUCCESS) {
        fill(address, size);
    } else if (!failed) {
        failed = true;
        gf_error(
            "what the device wrote to memory that it shares with the program cannot be fetched any more: "
            "the program sees what it last wrote itself.");
    }
    gf_range_leave(current);
    return let_read(parts, count, gf_range_base(range) + parts[0].first * GF_PAGE, pages);
}

bool gf_range_may(const struct gf_range *range, uint64_t page, bool write) {
    return range->state[page] >= (write ? GF_DIRTY : GF_CLEAN);
}

bool gf_range_reach(struct gf_range *range, uint64_t page, bool write) {
    if (range->state[page] == GF_CLEAN && write) {
        return protect(range, page, page + 1, GF_DIRTY, PROT_READ | PROT_WRITE);
    }
    /* what failed may have changed a part */
    return allow(range, page, page + 1, range->state[page] == GF_CLEAN ? PROT_READ : PROT_READ | PROT_WRITE);
}
