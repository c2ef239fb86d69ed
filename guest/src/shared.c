#include "shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "channel.h"
#include "context.h"
#include "exchange.h"
#include "front.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "freeing.h"
#include "hooks.h"
#include "host_memory.h"
#include "log.h"
#include "mirror.h"
#include "objects.h"
#include "ranges.h"
#include "stream.h"
#include "window.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Registered memory that is looked at while the device works. */
#define ASKED_MAX   (64u << 10) /* registered memory that a question about the device brings */
#define MAILBOX_MAX (16u << 20) /* that is brought while nobody asks */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_ranges ranges;
static _Atomic uint64_t lowest = UINT64_MAX, highest; /* of memory that came with modules */
static CUstream streams[GF_DEVICES_MAX];              /* of our own, for what is sent and fetched */
static uint32_t unsettled; /* a bit for each device to which was sent what its other work must not overtake */
static bool busy;          /* the device may be at work on it */
static bool working;       /* the same, until the program has waited for all of it */
static uint64_t work;      /* counts what was given to the device */
static bool fetched;       /* since the program last waited for the device, which may have written it again */
static uint64_t begun;     /* counts pages that the program began to write */

/* Whether an address may be of such memory: all others are told from it without the lock. */
static bool may_hold(uint64_t address) {
    return gf_window_contains(address) || (address >= atomic_load_explicit(&lowest, memory_order_relaxed) &&
                                           address < atomic_load_explicit(&highest, memory_order_relaxed));
}

/* By device; 0, its legacy stream, where there is none of ours. With the lock held. */
static const uint64_t *wire_streams(void) {
    static uint64_t wire[GF_DEVICES_MAX];
    for (CUdevice device = 0; device < gf_session.device_count; device++) {
        wire[device] = gf_stream_find(streams[device]) == NULL ? 0 : (uint64_t)streams[device];
    }
    return wire;
}

static CUdevice device_of(const struct gf_range *range) {
    return gf_context_device(range->owner);
}

static uint64_t stream_of(const struct gf_range *range) {
    return wire_streams()[device_of(range)];
}

/* Our own calls are made in a context that there is, whatever is current here. */
static void use_context_of(CUdevice device) {
    struct gf_stream *found = gf_stream_find(streams[device]);
    if (found != NULL) {
        gf_thread.context_id = gf_handle_slot(found->object.owner) + 1;
    }
}

static uint32_t enter(void) {
    uint32_t current = gf_thread.context_id;
    for (CUdevice device = 0; device < gf_session.device_count; device++) {
        use_context_of(device);
    }
    gf_thread.sharing = true;
    return current;
}

/* With the lock held: what was sent is there before anything else is asked of the devices. */
static void settle(void) {
    uint32_t before = gf_thread.context_id;
    for (CUdevice device = 0; unsettled != 0; device++, unsettled >>= 1) {
        struct gf_req_cuStreamSynchronize request = {.hStream = wire_streams()[device]};
        if ((unsettled & 1) == 0) {
            continue;
        }
        use_context_of(device);
        CUresult result = gf_call_struct(GF_OP_cuStreamSynchronize, &request, sizeof request, NULL, 0);
        if (result != CUDA_SUCCESS) {
            gf_channel_latch(gf_thread.context_id, result);
        }
    }
    gf_thread.context_id = before;
}

/* With the lock held: of memory of several pages, or of one, that which the program last began to write. */
static struct gf_range *last_begun(bool several) {
    struct gf_range *last = NULL;
    for (size_t i = 0; i < ranges.count; i++) {
        struct gf_range *range = ranges.at[i];
        if ((range->pages > 1) == several && range->begun > (last == NULL ? 0 : last->begun)) {
            last = range;
        }
    }
    return last;
}

/* With the lock held; `lent`: what was lent to system calls, too. */
static void flush_pages(struct gf_range *range, uint64_t first, uint64_t last, bool lent) {
    if (lent || !range->lent) {
        gf_range_enter(range);
        unsettled |= (uint32_t)gf_range_flush(range, first, last, stream_of(range)) << device_of(range);
    }
}

/* With the lock held. What the device may take for a sign of the rest comes last: of memory of several pages
 * the one that was begun last, and behind it memory of a single page, of which again what was begun last. */
static void flush_ranges(bool lent) {
    struct gf_range *large = last_begun(true), *word = last_begun(false);
    for (size_t i = 0; i < ranges.count; i++) {
        struct gf_range *range = ranges.at[i];
        if (range->pages > 1) {
            uint64_t sign = range == large ? range->begun_page : range->pages;
            flush_pages(range, 0, sign, lent);
            flush_pages(range, sign + 1, range->pages, lent);
        }
    }
    if (large != NULL) {
        flush_pages(large, large->begun_page, large->begun_page + 1, lent);
    }
    for (size_t i = 0; i < ranges.count; i++) {
        if (ranges.at[i]->pages == 1 && ranges.at[i] != word) {
            flush_pages(ranges.at[i], 0, 1, lent);
        }
    }
    if (word != NULL) {
        flush_pages(word, 0, 1, lent);
    }
}

/* With the lock held. */
static void flush_all(void) {
    uint32_t current = enter();
    unsettled |= gf_mirrors_flush(wire_streams(), working, UINT64_MAX);
    flush_ranges(true);
    settle();
    gf_range_leave(current);
}

static void take_all_away(void) {
    for (size_t i = 0; i < ranges.count; i++) {
        gf_range_take_away(ranges.at[i]);
        ranges.at[i]->lent = false;
    }
}

static bool resolve(uint64_t address, bool write);

/* A stream of our own on this device, which does not wait for the program's; the default stream where no
 * context is current. With the lock held. */
static CUresult have_stream(void) {
    CUstream *stream = &streams[gf_device_number()];
    gf_window_stream_may_wait();
    if (gf_stream_find(*stream) != NULL || gf_context_current_handle() == 0) {
        return CUDA_SUCCESS;
    }
    gf_thread.sharing = true;
    CUresult result = gf_cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0);
    gf_thread.sharing = false;
    return result;
}

/* With the lock held. Nothing tells when the program looks at registered memory: as long as the device works,
 * it may be looking. */
static void exchange_mailboxes(void) {
    unsettled |= gf_mirrors_flush(wire_streams(), true, MAILBOX_MAX);
    settle();
    gf_mirrors_fetch(wire_streams(), true, MAILBOX_MAX);
    if (!gf_mirrors_idle(work, MAILBOX_MAX)) {
        gf_exchange_soon();
    }
}

/* The program touched pages while the device works. What a system call was given stays there until the next
 * call of ours: it may wait, and would then find that the memory cannot be touched. */
static void exchange(void) {
    pthread_mutex_lock(&lock);
    uint32_t current = enter();
    if (working && !gf_channel_lost()) {
        flush_ranges(false);
        for (size_t i = 0; i < ranges.count; i++) {
            if (!ranges.at[i]->lent) {
                gf_range_take_away(ranges.at[i]);
            }
        }
        exchange_mailboxes();
    }
    settle();
    gf_range_leave(current);
    pthread_mutex_unlock(&lock);
}

/* Before the device is given work. */
static void before_work(void) {
    if (gf_thread.sharing) {
        return;
    }
    pthread_mutex_lock(&lock);
    have_stream();
    flush_all();
    take_all_away();
    busy = working = true;
    work++;
    fetched = false;
    bool mailboxes = gf_mirrors_any(MAILBOX_MAX);
    if (ranges.count > 0 || mailboxes) {
        gf_exchange_begin(exchange);
    }
    if (mailboxes) {
        gf_exchange_soon();
    }
    gpuferry_resolve_faults(resolve);
    pthread_mutex_unlock(&lock);
}

static void before_wait(void) {
    if (busy && !gf_thread.sharing) {
        pthread_mutex_lock(&lock);
        gf_thread.waits_for = work;
        flush_all();
        pthread_mutex_unlock(&lock);
    }
}

static void after_wait(void) {
    if (gf_thread.sharing) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (fetched) {
        flush_all(); /* another thread may have written meanwhile */
        take_all_away();
        fetched = false;
    }
    pthread_mutex_unlock(&lock);
}

/* Registered memory has no faults that tell what the program wants to see. */
static void fetch_mirrors(bool while_working, uint64_t most) {
    if (busy && !gf_thread.sharing) {
        pthread_mutex_lock(&lock);
        uint32_t current = enter();
        gf_mirrors_fetch(wire_streams(), while_working, most);
        gf_range_leave(current);
        pthread_mutex_unlock(&lock);
    }
}

static void done(void) {
    fetch_mirrors(false, UINT64_MAX);
}

/* A kernel may say by a word there how far it is, and the program ask about it meanwhile. */
static void not_done(void) {
    fetch_mirrors(true, ASKED_MAX);
}

static void idle(void) {
    if (!gf_thread.sharing && gf_context_is_only_one()) {
        pthread_mutex_lock(&lock);
        working = working && gf_thread.waits_for != work;
        pthread_mutex_unlock(&lock);
    }
}

bool gf_shared_at_work(void) {
    if (atomic_load_explicit(&gf_sharing, memory_order_acquire) == NULL) {
        return false;
    }
    pthread_mutex_lock(&lock);
    bool at_work = working && (ranges.count > 0 || gf_mirrors_any(UINT64_MAX));
    pthread_mutex_unlock(&lock);
    return at_work;
}

static void before_array_end(void) {
    if (!gf_thread.sharing && gf_shared_at_work()) {
        gf_wait_for_context(gf_context_current_handle());
    }
}

void gf_shared_flush(void) {
    pthread_mutex_lock(&lock);
    flush_all();
    pthread_mutex_unlock(&lock);
}

/* Whether the calling thread may have pages changed: not in the middle of it, nor with a connection that is
 * another process's. */
static bool may_change(void) {
    return !gf_thread.sharing && gf_session_state() != GF_FORKED;
}

/* With the lock held. While the device works, a page that is brought early may be older than the word that
 * the program polls; else what lies around it is brought along, whose memory it be. */
static bool bring(struct gf_range *range, uint64_t page, bool write) {
    if (range->state[page] == GF_AWAY) {
        struct gf_part parts[GF_PARTS_MAX];
        size_t place = gf_ranges_place(&ranges, gf_range_base(range));
        unsigned count = working ? gf_parts_behind(range, page, parts)
                                 : gf_parts_around(ranges.at, ranges.count, place, page, parts);
        if (!gf_parts_fetch(parts, count, stream_of(range))) {
            return false;
        }
    }
    return gf_range_reach(range, page, write);
}

/* With the lock held: the pages of all such memory have the same rights from here on, so that they are few
 * areas again. */
static bool reach_anew(struct gf_range *range, uint64_t page, bool write) {
    static bool said;
    flush_all();
    take_all_away();
    bool reached = bring(range, page, write);
    if (!reached && !said) {
        said = true;
        gf_error(
            "this process has as many areas of memory as the system allows (vm.max_map_count), so memory "
            "that program and device share cannot be touched.");
    }
    return reached;
}

/* With the lock held. False: it cannot be touched. */
static bool reach(struct gf_range *range, uint64_t page, bool write) {
    bool changes = !gf_range_may(range, page, write);
    fetched = fetched || (working && range->state[page] == GF_AWAY);
    bool reached = bring(range, page, write) || reach_anew(range, page, write);
    if (changes && write) {
        range->begun = ++begun;
        range->begun_page = page;
    }
    if (working && changes) {
        gf_exchange_soon();
    }
    return reached;
}

static bool resolve(uint64_t address, bool write) {
    if (!may_hold(address) || !may_change()) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_range *range = gf_ranges_find(&ranges, address);
    bool reached = range != NULL && reach(range, (address - gf_range_base(range)) / GF_PAGE, write);
    pthread_mutex_unlock(&lock);
    return reached;
}

static bool reach_range(uint64_t address, uint64_t size, bool write) {
    if (!may_hold(address) || !may_change()) {
        return false;
    }
    int error = errno;
    bool changed = false;
    gf_within_begin();
    pthread_mutex_lock(&lock);
    struct gf_range *range = gf_ranges_find(&ranges, address);
    if (range != NULL && size > 0) {
        range->lent = true;
        uint64_t offset = address - gf_range_base(range), left = range->pages * GF_PAGE - offset;
        uint64_t last = (offset + (size < left ? size : left) - 1) / GF_PAGE;
        for (uint64_t page = offset / GF_PAGE; page <= last; page++) {
            if (!gf_range_may(range, page, write)) {
                reach(range, page, write);
                changed = true;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    gf_within_end();
    errno = error;
    return changed;
}

/* With the lock held: shared memory is noticed from here on. */
static void prepare(void) {
    static const struct gf_sharing sharing = {may_hold, reach_range};
    gpuferry_resolve_faults(resolve);
    gpuferry_reach_first(reach_range);
    atomic_store(&gf_sharing, &sharing);
    gf_hook_set(GF_BEFORE_ARRAY_END, before_array_end);
    gf_hook_set(GF_BEFORE_WORK, before_work);
    gf_hook_set(GF_BEFORE_WAIT, before_wait);
    gf_hook_set(GF_AFTER_WAIT, after_wait);
    gf_hook_set(GF_DONE, done);
    gf_hook_set(GF_NOT_DONE, not_done);
    gf_hook_set(GF_IDLE, idle);
}

/* With the lock held. The work that is under way may have been given without any such memory. */
static CUresult add(struct gf_range *range) {
    if (!gf_ranges_add(&ranges, range)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    prepare();
    if (working) {
        gf_exchange_begin(exchange);
    }
    return CUDA_SUCCESS;
}

static CUresult taken(uint64_t address) {
    gf_error("memory that program and device share needs the addresses from %p on, which are taken in this "
             "process or not to be had in it: it has as many areas of memory as the system allows "
             "(vm.max_map_count), or as much as it may (ulimit -v), or was built with a sanitizer that keeps "
             "them (thread, memory).",
             (void *)address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Kernels of all devices that can reach such memory may, once and for all. Without the lock: a function of
 * the program may be waited for, which wants it. */
static CUresult open_to_all(CUdevice owner) {
    static _Atomic uint32_t open; /* a bit for each device */
    CUresult result = CUDA_SUCCESS;
    if (gf_session.device_count == 1 || (atomic_load(&open) >> owner & 1) != 0) {
        return result;
    }
    gf_access_begins();
    for (CUdevice device = 0; device < gf_session.device_count && result == CUDA_SUCCESS; device++) {
        struct gf_req_sessionReach request = {.device = device, .owner = owner};
        bool opens = device != owner && gf_session.links[device][owner].can_access;
        result = opens ? gf_send_struct(GF_OP_sessionReach, &request) : CUDA_SUCCESS;
    }
    atomic_fetch_or(&open, result == CUDA_SUCCESS ? UINT32_C(1) << owner : 0);
    return result;
}

CUresult gf_shared_alloc(uint64_t size, unsigned flags, bool managed, uint64_t *address) {
    uint64_t rounded = (size + GF_PAGE - 1) / GF_PAGE * GF_PAGE, owner = gf_context_current_handle();
    CUdevice device = gf_device_number();
    CUresult result =
        rounded < size ? CUDA_ERROR_OUT_OF_MEMORY : gf_window_alloc_pages(device, size, owner, address);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_range *range =
        gf_range_new(&(struct gf_shared){*address, size, flags, managed}, owner, GF_FRESH);
    if (range == NULL) {
        gf_window_free(*address, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = open_to_all(device);
    pthread_mutex_lock(&lock);
    result = result == CUDA_SUCCESS ? have_stream() : result;
    bool touchable = result == CUDA_SUCCESS && gf_window_touchable(*address, rounded);
    if (result == CUDA_SUCCESS && !touchable) {
        result = taken(*address);
    }
    if (result == CUDA_SUCCESS) {
        struct gf_req_sessionFill zero = {.stream = wire_streams()[device],
                                          .address = *address,
                                          .pitch = rounded,
                                          .width = rounded,
                                          .rows = 1,
                                          .element = 1};
        result = gf_send_struct(GF_OP_sessionFill, &zero);
        unsettled |= UINT32_C(1) << device;
    }
    result = result == CUDA_SUCCESS ? add(range) : result;
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS && touchable) {
        gf_window_untouchable(*address, rounded);
    }
    if (result != CUDA_SUCCESS) {
        gf_window_free(*address, 0);
        gf_range_free(range);
    }
    return result;
}

CUresult gf_shared_begin(uint64_t address, uint64_t size, unsigned flags) {
    const struct gf_shared shared = {address, size, flags, false};
    struct gf_range *range = gf_range_new(&shared, gf_context_current_handle(), GF_DIRTY);
    if (range == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    CUresult result = have_stream();
    result = result == CUDA_SUCCESS ? add(range) : result;
    if (result != CUDA_SUCCESS) {
        gf_range_free(range);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult gf_shared_open(uint64_t address, uint64_t size, CUdevice device) {
    const struct gf_shared shared = {address, size, 0, false};
    uint64_t owner = gf_context_current_handle();
    if (owner == 0 || gf_context_device(owner) != device) { /* what is sent and fetched goes by a stream */
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct gf_range *range = gf_range_new(&shared, owner, GF_CLEAN);
    if (range == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    bool is_there = gf_ranges_find(&ranges, address) != NULL;
    CUresult result = is_there ? CUDA_SUCCESS : have_stream();
    if (result == CUDA_SUCCESS && !is_there) {
        result = gf_window_touchable(address, size) ? add(range) : taken(address);
    }
    if (result == CUDA_SUCCESS && !is_there) {
        gf_range_take_away(range);
    } else {
        gf_range_free(range);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult gf_shared_mirror(uint64_t host, uint64_t size, uint64_t *device) {
    struct gf_mirror mirror;
    pthread_mutex_lock(&lock);
    CUresult result = have_stream();
    if (gf_mirror_find(host, true, &mirror)) { /* another thread was first */
        *device = mirror.device;
    } else if (result == CUDA_SUCCESS) {
        result = gf_mirror_new(host, size, device);
    }
    if (result == CUDA_SUCCESS) {
        prepare();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void gf_shared_end_mirror(uint64_t host) {
    struct gf_mirror mirror;
    if (gf_mirror_find(host, true, &mirror)) {
        gf_wait_for_context(mirror.owner);
        pthread_mutex_lock(&lock);
        gf_mirrors_end(host, 0);
        pthread_mutex_unlock(&lock);
    }
}

static void widen(const struct gf_range *range) {
    uint64_t first = gf_range_base(range), end = first + range->pages * GF_PAGE;
    atomic_store(&lowest, first < lowest ? first : lowest);
    atomic_store(&highest, end > highest ? end : highest);
}

/* With the lock held. */
static CUresult adopt(uint64_t address, uint64_t size, uint64_t context) {
    struct gf_range *range = gf_range_new(&(struct gf_shared){address, size, 0, true}, context, GF_AWAY);
    if (range == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *wanted = (void *)gf_range_base(range);
    void *got = mmap(wanted, range->pages * GF_PAGE, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != wanted) {
        if (got != MAP_FAILED) { /* a kernel that does not know the flag */
            munmap(got, range->pages * GF_PAGE);
        }
        gf_range_free(range);
        return taken(address);
    }
    range->users = 1;
    CUresult result = add(range);
    if (result == CUDA_SUCCESS) {
        widen(range);
    } else {
        munmap(got, range->pages * GF_PAGE);
        gf_range_free(range);
    }
    return result;
}

CUresult gf_shared_adopt(uint64_t address, uint64_t size, uint64_t context) {
    pthread_mutex_lock(&lock);
    struct gf_range *range = may_hold(address) ? gf_ranges_find(&ranges, address) : NULL;
    CUresult result = CUDA_SUCCESS;
    if (range != NULL) {
        range->users++;
    } else {
        result = adopt(address, size, context);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* With the lock held. */
static void end(struct gf_range *range) {
    uint64_t pages = gf_range_base(range), size = range->pages * GF_PAGE;
    gf_ranges_remove(&ranges, range);
    if (range->users > 0) {
        munmap((void *)pages, size);
    } else {
        gf_window_untouchable(pages, size);
    }
    gf_range_free(range);
}

/* With the lock held: what begins at an address, and came with a module, or did not. */
static struct gf_range *find_whole(uint64_t address, bool adopted) {
    struct gf_range *range = gf_ranges_find(&ranges, address);
    return range != NULL && range->shared.address == address && (range->users > 0) == adopted ? range : NULL;
}

void gf_shared_leave(uint64_t address) {
    pthread_mutex_lock(&lock);
    struct gf_range *range = find_whole(address, true);
    if (range != NULL && --range->users == 0) {
        range->users = 1; /* as which it ends */
        end(range);
    }
    pthread_mutex_unlock(&lock);
}

bool gf_shared_end(uint64_t address, bool managed) {
    pthread_mutex_lock(&lock);
    struct gf_range *range = find_whole(address, false);
    bool found = range != NULL && range->shared.managed == managed;
    if (found) {
        end(range);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* With the lock held. What the context's kernels write until it ends is fetched from there on. */
static void hand_over(struct gf_range *range, uint64_t owner) {
    flush_all();
    gf_range_take_away(range);
    range->lent = false;
    range->owner = owner;
}

void gf_shared_end_context(uint64_t owner) {
    pthread_mutex_lock(&lock);
    gf_mirrors_end(0, owner);
    for (size_t i = 0; i < ranges.count;) {
        struct gf_range *range = ranges.at[i];
        struct gf_host_range kept;
        bool ends = range->owner == owner && range->users == 0;
        if (ends && gf_host_find(range->shared.address, &kept)) {
            hand_over(range, kept.owner);
            ends = false;
        }
        if (ends) {
            end(range);
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool gf_shared_find(uint64_t address, struct gf_shared *found) {
    if (!may_hold(address)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_range *range = gf_ranges_find(&ranges, address);
    bool is = range != NULL && address - range->shared.address < range->shared.size;
    if (is) {
        *found = range->shared;
    }
    pthread_mutex_unlock(&lock);
    return is;
}
