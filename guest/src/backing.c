#include "backing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "channel.h"
#include "gpuferry/messages.h"
#include "guest.h"
#include "host_call.h"
#include "hooks.h"
#include "session.h"
#include "unmaps.h"

#define RUN_MAX        32 /* granules mapped by one request, which can only be unmapped as a whole */
#define CACHE_MINIMUM  (64ull << 20) /* backing without allocations that is kept all the same */
#define CLAIMS         20            /* of what other processes have, before it is out of memory */
#define CLAIM_PAUSE_NS 5000000

/* One granule of backing. */
struct gf_granule {
    uint16_t live;      /* allocations that touch it */
    uint8_t run_length; /* of the run that starts here */
    uint8_t run_live;   /* its granules that have allocations */
    uint32_t run;       /* first granule of its run + 1; 0: not mapped */
};

static struct gf_backing *backings; /* of all devices */
static bool claims;                 /* this process knows that it shares its lease */

bool gf_backing_init(struct gf_backing *backing, int device, uint64_t base, uint64_t size) {
    struct gf_granule *granules =
        mmap(NULL, size / gf_session.granularity * sizeof *granules, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *backing = (struct gf_backing){.device = device, .base = base, .granules = granules, .next = backings};
    backings = backing;
    return granules != MAP_FAILED;
}

static uint64_t granule_at(const struct gf_backing *backing, uint64_t address) {
    return (address - backing->base) / gf_session.granularity;
}

static void send_unmap(const struct gf_backing *backing, uint64_t first, uint64_t count) {
    struct gf_req_sessionMemUnmap request = {.address = backing->base + first * gf_session.granularity,
                                             .size = count * gf_session.granularity};
    gf_send_struct(GF_OP_sessionMemUnmap, &request);
    gf_unmaps_note();
}

static void send_map(const struct gf_backing *backing, uint64_t first, uint64_t count) {
    struct gf_req_sessionMemMapOn request = {.address = backing->base + first * gf_session.granularity,
                                             .size = count * gf_session.granularity,
                                             .device = backing->device};
    struct gf_req_sessionMemMap plain = {request.address, request.size};
    if (backing->device == 0) {
        gf_send_struct(GF_OP_sessionMemMap, &plain); /* which servers of every release know */
    } else {
        gf_send_struct(GF_OP_sessionMemMapOn, &request);
    }
}

static void unmap_run(struct gf_backing *backing, uint64_t first) {
    struct gf_granule *granules = backing->granules;
    uint64_t length = granules[first].run_length;
    /* The server maps what comes there when the device is done with what was there. */
    gf_hook(GF_BEFORE_UNMAP);
    send_unmap(backing, first, length);
    memset(&granules[first], 0, length * sizeof *granules);
    backing->unmaps++;
    backing->mapped -= length;
    backing->empty -= length;
    backing->trimmable -= length;
}

/* Gives back empty runs until at most `keep` granules are trimmable. */
static void trim(struct gf_backing *backing, uint64_t keep) {
    const struct gf_granule *granules = backing->granules;
    for (uint64_t i = 0; i < backing->granule_high && backing->trimmable > keep;) {
        uint64_t length = granules[i].run == i + 1 ? granules[i].run_length : 1;
        if (granules[i].run == i + 1 && granules[i].run_live == 0) {
            unmap_run(backing, i);
        }
        i += length;
    }
}

/* A large allocation's backing goes when it does, as the driver's does: a kernel that still uses it must
 * fail, and another session may need the memory. Small ones would ask the server for every pair of calls. */
static void trim_between(struct gf_backing *backing, uint64_t first, uint64_t last) {
    const struct gf_granule *granules = backing->granules;
    for (uint64_t i = first; i <= last; i++) {
        if (granules[i].run == i + 1 && granules[i].run_live == 0) {
            unmap_run(backing, i);
        }
    }
}

static void set_live(struct gf_backing *backing, uint64_t index, int change) {
    struct gf_granule *granule = &backing->granules[index];
    bool was = granule->live > 0;
    granule->live = (uint16_t)(granule->live + change);
    if (granule->run == 0 || was == (granule->live > 0)) {
        return;
    }
    struct gf_granule *run = &backing->granules[granule->run - 1];
    if (was) {
        backing->empty++;
        backing->trimmable += --run->run_live == 0 ? run->run_length : 0;
    } else {
        backing->empty--;
        backing->trimmable -= run->run_live++ == 0 ? run->run_length : 0;
    }
}

static void map_run(struct gf_backing *backing, uint64_t first, uint64_t length) {
    struct gf_granule *granules = backing->granules;
    send_map(backing, first, length);
    granules[first].run_length = (uint8_t)length;
    for (uint64_t i = first; i < first + length; i++) {
        granules[i].run = (uint32_t)first + 1;
    }
    granules[first].run_live = (uint8_t)length; /* only what an allocation touches is mapped */
    backing->mapped += length;
    backing->granule_high = first + length > backing->granule_high ? first + length : backing->granule_high;
}

uint64_t gf_backing_held(const struct gf_backing *backing) {
    return backing->mapped * gf_session.granularity + backing->elsewhere;
}

/* Whether other processes have the lease too. What was mapped until this is noticed, the server claims. */
static bool shared(void) {
    if (!claims && atomic_load_explicit(&gf_session.shared, memory_order_relaxed)) {
        claims = true;
        for (struct gf_backing *each = backings; each != NULL; each = each->next) {
            each->credit = gf_backing_held(each);
        }
    }
    return claims;
}

/* The same, with what the server has said meanwhile. */
static bool shared_by_now(void) {
    if (!claims) {
        gf_channel_glance();
    }
    return shared();
}

/* So many bytes of the lease's memory for this process, in all. Whoever reads the answer takes no lock that
 * the caller may have. */
static CUresult claim(struct gf_backing *backing, uint64_t wanted, uint64_t *left) {
    struct gf_req_sessionMemoryClaimOn request = {.wanted = wanted, .device = backing->device};
    struct gf_req_sessionMemoryClaim plain = {wanted};
    struct gf_rep_sessionMemoryClaimOn reply = {0};
    struct gf_call call = {.op = GF_OP_sessionMemoryClaimOn, .reply = &reply, .reply_size = sizeof reply};
    struct iovec body = {&request, sizeof request};
    if (backing->device == 0) { /* which servers of every release know */
        call.op = GF_OP_sessionMemoryClaim;
        body = (struct iovec){&plain, sizeof plain};
    }
    gf_thread.locked++;
    CUresult result = gf_call_parts(&call, &body, 1);
    gf_thread.locked--;
    free(call.payload);
    if (call.done && call.status == CUDA_SUCCESS) {
        backing->credit = reply.credit;
        *left = reply.left;
    }
    return result;
}

/* Others may claim what this process does not have any more. False: it has all that it had. */
static bool keep_what_is_held(struct gf_backing *backing) {
    if (!claims || backing->credit <= gf_backing_held(backing)) {
        return false;
    }
    backing->credit = gf_backing_held(backing);
    struct gf_req_sessionMemoryKeepOn request = {.credit = backing->credit, .device = backing->device};
    struct gf_req_sessionMemoryKeep plain = {request.credit};
    if (backing->device == 0) {
        gf_send_struct(GF_OP_sessionMemoryKeep, &plain);
    } else {
        gf_send_struct(GF_OP_sessionMemoryKeepOn, &request);
    }
    return true;
}

/* Room for so many bytes more below the limit, in place of backing that nobody uses. */
static bool replace(struct gf_backing *backing, uint64_t bytes, uint64_t limit) {
    uint64_t wanted = gf_backing_held(backing) + bytes;
    if (wanted > limit) {
        uint64_t excess = (wanted - limit + gf_session.granularity - 1) / gf_session.granularity;
        if (excess > backing->trimmable) {
            return false;
        }
        trim(backing, backing->trimmable - excess);
    }
    return true;
}

/* Room for so many bytes more, if need be in place of backing that nobody uses. */
static CUresult make_room(struct gf_backing *backing, uint64_t bytes) {
    const struct timespec pause = {.tv_nsec = CLAIM_PAUSE_NS};
    uint64_t quota = gf_session.quota, wanted = gf_backing_held(backing) + bytes, left;
    if (bytes > quota) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!shared_by_now()) {
        return replace(backing, bytes, quota) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 1;; i++) {
        CUresult result = wanted <= backing->credit ? CUDA_SUCCESS : claim(backing, wanted, &left);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && replace(backing, bytes, backing->credit)) {
            result = CUDA_SUCCESS;
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY) {
            return result;
        }
        if (wanted > quota || i == CLAIMS) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        /* A process that has just ended may have it yet: its server must hear of that. */
        nanosleep(&pause, NULL);
    }
}

/* Backing for granules first…last, which are marked live. */
static CUresult back(struct gf_backing *backing, uint64_t first, uint64_t last) {
    const struct gf_granule *granules = backing->granules;
    uint64_t missing = 0;
    for (uint64_t i = first; i <= last; i++) {
        missing += granules[i].run == 0;
    }
    CUresult result = missing > 0 ? make_room(backing, missing * gf_session.granularity) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (uint64_t i = first; i <= last; i++) {
        uint64_t length = 0;
        while (i + length <= last && length < RUN_MAX && granules[i + length].run == 0) {
            length++;
        }
        if (length > 0) {
            map_run(backing, i, length);
            i += length - 1;
        }
    }
    return CUDA_SUCCESS;
}

bool gf_backing_is_apart(struct gf_backing *backing, uint64_t address, uint64_t size) {
    const struct gf_granule *granules = backing->granules;
    uint64_t first = granule_at(backing, address), last = granule_at(backing, address + size - 1);
    for (uint64_t i = first; i <= last; i++) {
        uint64_t run = granules[i].run;
        if (run == 0 || (run - 1 >= first && run - 1 + granules[run - 1].run_length <= last + 1)) {
            continue;
        }
        if (granules[run - 1].run_live > 0) {
            return false;
        }
        unmap_run(backing, run - 1);
    }
    return true;
}

bool gf_backing_was_there(const struct gf_backing *backing, uint64_t address, uint64_t size) {
    uint64_t first = granule_at(backing, address), last = granule_at(backing, address + size - 1);
    uint64_t i = first;
    while (i <= last && i < backing->granule_high && backing->granules[i].run != 0) {
        i++;
    }
    return i <= last && i < backing->granule_high;
}

void gf_backing_clear(struct gf_backing *backing, uint64_t address, uint64_t size) {
    const struct gf_granule *granules = backing->granules;
    uint64_t first = granule_at(backing, address), last = granule_at(backing, address + size - 1);
    for (uint64_t i = first; i <= last && i < backing->granule_high; i++) {
        if (granules[i].run != 0 && granules[granules[i].run - 1].run_live == 0) {
            unmap_run(backing, granules[i].run - 1);
        }
    }
}

CUresult gf_backing_use(struct gf_backing *backing, uint64_t address, uint64_t size) {
    uint64_t first = granule_at(backing, address), last = granule_at(backing, address + size - 1);
    for (uint64_t i = first; i <= last; i++) {
        set_live(backing, i, 1);
    }
    CUresult result = back(backing, first, last);
    for (uint64_t i = first; i <= last && result != CUDA_SUCCESS; i++) {
        set_live(backing, i, -1);
    }
    return result;
}

bool gf_backing_leave(struct gf_backing *backing, uint64_t address, uint64_t size, bool exported) {
    uint64_t first = granule_at(backing, address), last = granule_at(backing, address + size - 1);
    for (uint64_t i = first; i <= last; i++) {
        set_live(backing, i, -1);
    }
    /* Before the same pages are mapped again, the server would have to wait for the device. */
    bool cheap = size >= gf_session.granularity && !gf_host_calls_pending();
    if (exported || cheap) {
        trim_between(backing, first, last);
    }
    uint64_t cache = gf_session.quota / 4 > CACHE_MINIMUM ? gf_session.quota / 4 : CACHE_MINIMUM;
    if (shared() && cache > CACHE_MINIMUM) {
        cache = CACHE_MINIMUM; /* others need it */
    }
    if (backing->trimmable * gf_session.granularity > cache) {
        trim(backing, cache / gf_session.granularity / 2);
    }
    return keep_what_is_held(backing);
}

bool gf_backing_give_back(struct gf_backing *backing) {
    trim(backing, 0);
    return keep_what_is_held(backing);
}

bool gf_backing_charge(struct gf_backing *backing, uint64_t bytes) {
    bool fits = make_room(backing, bytes) == CUDA_SUCCESS;
    backing->elsewhere += fits ? bytes : 0;
    return fits;
}

bool gf_backing_refund(struct gf_backing *backing, uint64_t bytes) {
    backing->elsewhere -= bytes;
    return keep_what_is_held(backing);
}

CUresult gf_backing_info(struct gf_backing *backing, uint64_t limit, uint64_t *used, uint64_t *usable) {
    uint64_t left = 0;
    CUresult result = shared_by_now() ? claim(backing, 0, &left) : CUDA_SUCCESS;
    *used = (backing->mapped - backing->empty) * gf_session.granularity + backing->elsewhere;
    *usable = claims ? backing->credit + left : limit;
    return result;
}
