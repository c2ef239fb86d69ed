#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel.h"
#include "context.h"
#include "fault.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "hooks.h"
#include "log.h"
#include "objects.h"
#include "window.h"

#define PAGE      4096ull
#define FETCH_MAX (64 * PAGE) /* brought by one fault */
#define SEND_MAX  (1024 * PAGE)

enum page {
    AWAY,  /* the device may have written it: no access */
    CLEAN, /* as on the device: may be read */
    DIRTY, /* the program may have written it */
    FRESH, /* likewise, and it is zero on the device */
};

struct range {
    struct gf_shared shared;
    uint64_t owner, pages, present; /* present: pages that are not away */
    uint8_t *state;
    struct range *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static CUstream stream; /* of our own, for what is sent and fetched */
static bool unsettled;  /* something was sent on it that the device's other work must not overtake */
static bool busy;       /* the device may be at work on it */
static bool fetched;    /* since the program last waited for the device, which may have written it again */
static bool failed;     /* to fetch; it was said */
static int memory = -1; /* /proc/self/mem, which writes to pages that threads cannot touch yet */
static char bounce[FETCH_MAX];

static uint64_t base(const struct range *range, uint64_t page) {
    return range->shared.address + page * PAGE;
}

static void protect(struct range *range, uint64_t first, uint64_t last, enum page state, int protection) {
    mprotect((void *)base(range, first), (last - first) * PAGE, protection);
    for (uint64_t i = first; i < last; i++) {
        range->present += (range->state[i] == AWAY) - (uint64_t)(state == AWAY);
        range->state[i] = (uint8_t)state;
    }
}

/* With the lock held. */
static struct range *find(uint64_t address) {
    struct range *range = ranges;
    while (range != NULL && address - range->shared.address >= range->pages * PAGE) {
        range = range->next;
    }
    return range;
}

static uint64_t wire_stream(void) {
    return gf_stream_find(stream) == NULL ? 0 : (uint64_t)stream;
}

/* Our own calls are made in the context of the memory, whatever is current here. */
static uint32_t enter(const struct range *range) {
    uint32_t current = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(range->owner) + 1;
    gf_thread.sharing = true;
    return current;
}

static void leave(uint32_t current) {
    gf_thread.context_id = current;
    gf_thread.sharing = false;
}

static bool is_zero(const char *page) {
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* Whether a page must be sent. */
static bool differs(const struct range *range, uint64_t page) {
    return range->state[page] == DIRTY ||
           (range->state[page] == FRESH && !is_zero((const char *)base(range, page)));
}

static void send(struct range *range, uint64_t first, uint64_t last) {
    uint64_t size = (last - first) * PAGE;
    struct gf_req_sessionCopyIn request = {wire_stream(), base(range, first), size, size, 1};
    struct gf_rows rows = {(char *)base(range, first), size, size, 1};
    gf_send_rows(GF_OP_sessionCopyIn, &request, sizeof request, &rows);
    unsettled = true;
}

/* With the lock held: what the program writes from here on is noticed again. */
static void flush(struct range *range) {
    for (uint64_t first = 0; first < range->pages && range->present > 0;) {
        uint64_t last = first;
        while (last < range->pages && range->state[last] >= DIRTY) {
            last++;
        }
        if (last == first) {
            first++;
            continue;
        }
        mprotect((void *)base(range, first), (last - first) * PAGE, PROT_READ);
        for (uint64_t at = first; at < last;) {
            uint64_t end = at;
            while (end < last && end - at < SEND_MAX / PAGE && differs(range, end)) {
                end++;
            }
            if (end > at) {
                send(range, at, end);
            }
            at = end > at ? end : at + 1;
        }
        protect(range, first, last, CLEAN, PROT_READ);
        first = last;
    }
}

/* With the lock held. */
static void flush_all(void) {
    struct range *any = ranges;
    if (any == NULL) {
        return;
    }
    uint32_t current = enter(any);
    for (struct range *range = ranges; range != NULL; range = range->next) {
        gf_thread.context_id = gf_handle_slot(range->owner) + 1;
        flush(range);
    }
    if (unsettled) {
        struct gf_req_cuStreamSynchronize request = {.hStream = wire_stream()};
        gf_thread.context_id = gf_handle_slot(any->owner) + 1;
        CUresult result = gf_call_struct(GF_OP_cuStreamSynchronize, &request, sizeof request, NULL, 0);
        if (result != CUDA_SUCCESS) {
            gf_channel_latch(result);
        }
        unsettled = false;
    }
    leave(current);
}

static void take_all_away(void) {
    for (struct range *range = ranges; range != NULL; range = range->next) {
        if (range->present > 0) {
            protect(range, 0, range->pages, AWAY, PROT_NONE);
        }
    }
}

static bool resolve(uint64_t address, bool write);

/* Before the device is given work. */
static void before_work(void) {
    if (gf_thread.sharing) {
        return;
    }
    pthread_mutex_lock(&lock);
    flush_all();
    take_all_away();
    busy = true;
    fetched = false;
    gf_fault_install(resolve);
    pthread_mutex_unlock(&lock);
}

static void before_wait(void) {
    if (busy && !gf_thread.sharing) {
        gf_shared_flush();
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

void gf_shared_flush(void) {
    pthread_mutex_lock(&lock);
    flush_all();
    pthread_mutex_unlock(&lock);
}

/* No other thread may see a page before all of it is there. */
static void fill(struct range *range, uint64_t first, uint64_t last) {
    uint64_t size = (last - first) * PAGE;
    if (pwrite(memory, bounce, size, (off_t)base(range, first)) != (ssize_t)size) {
        mprotect((void *)base(range, first), size, PROT_READ | PROT_WRITE);
        memcpy((void *)base(range, first), bounce, size);
    }
}

static void fetch(struct range *range, uint64_t first) {
    uint64_t last = first;
    while (last < range->pages && last - first < FETCH_MAX / PAGE && range->state[last] == AWAY) {
        last++;
    }
    uint64_t size = (last - first) * PAGE;
    uint32_t current = enter(range);
    struct gf_req_sessionCopyOut request = {wire_stream(), base(range, first), size, size, 1};
    struct gf_call call = {.op = GF_OP_sessionCopyOut, .rows = {bounce, size, size, 1}};
    CUresult result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    leave(current);
    free(call.payload);
    if (result == CUDA_SUCCESS) {
        fill(range, first, last);
    } else if (!failed) {
        failed = true;
        gf_error(
            "what the device wrote to memory that it shares with the program cannot be fetched any more: "
            "the program sees what it last wrote itself.");
    }
    protect(range, first, last, CLEAN, PROT_READ);
    fetched = true;
}

/* With the lock held: a page may be touched. False: it could be already. */
static bool reach(struct range *range, uint64_t page, bool write) {
    bool changed = range->state[page] == AWAY || (range->state[page] == CLEAN && write);
    if (range->state[page] == AWAY) {
        fetch(range, page);
    }
    if (range->state[page] == CLEAN && write) {
        protect(range, page, page + 1, DIRTY, PROT_READ | PROT_WRITE);
    }
    return changed;
}

/* Whether the calling thread may have pages changed: not in the middle of it, nor with a connection that is
 * another process's. */
static bool may_change(void) {
    return !gf_thread.sharing && atomic_load(&gf_session.state) != GF_FORKED;
}

static bool resolve(uint64_t address, bool write) {
    if (!gf_window_contains(address) || !may_change()) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct range *range = find(address);
    if (range != NULL) {
        reach(range, (address - range->shared.address) / PAGE, write);
    }
    pthread_mutex_unlock(&lock);
    return range != NULL;
}

static bool reach_range(uint64_t address, uint64_t size, bool write) {
    if (!gf_window_contains(address) || !may_change()) {
        return false;
    }
    int error = errno;
    bool changed = false;
    pthread_mutex_lock(&lock);
    struct range *range = find(address);
    if (range != NULL && size > 0) {
        uint64_t offset = address - range->shared.address, left = range->pages * PAGE - offset;
        uint64_t last = (offset + (size < left ? size : left) - 1) / PAGE;
        for (uint64_t page = offset / PAGE; page <= last; page++) {
            changed = reach(range, page, write) || changed;
        }
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return changed;
}

/* With the lock held. */
static CUresult prepare(void) {
    if (gf_stream_find(stream) == NULL) {
        gf_thread.sharing = true;
        CUresult result = gf_cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
        gf_thread.sharing = false;
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (memory < 0) {
        memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    }
    gf_fault_install(resolve);
    static const struct gf_sharing sharing = {gf_window_contains, reach_range};
    atomic_store(&gf_sharing, &sharing);
    gf_hook_set(GF_BEFORE_WORK, before_work);
    gf_hook_set(GF_BEFORE_WAIT, before_wait);
    gf_hook_set(GF_AFTER_WAIT, after_wait);
    return CUDA_SUCCESS;
}

CUresult gf_shared_alloc(uint64_t size, unsigned flags, bool managed, uint64_t *address) {
    uint64_t rounded = (size + PAGE - 1) / PAGE * PAGE;
    struct range *range = rounded < size ? NULL : calloc(1, sizeof *range);
    uint8_t *state = range == NULL ? NULL : malloc(rounded / PAGE);
    CUresult result = state == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                    : gf_window_alloc_pages(size, gf_context_current_handle(), address);
    if (result != CUDA_SUCCESS) {
        free(range);
        free(state);
        return result;
    }
    memset(state, FRESH, rounded / PAGE);
    *range = (struct range){.shared = {*address, size, flags, managed},
                            .owner = gf_context_current_handle(),
                            .pages = rounded / PAGE,
                            .present = rounded / PAGE,
                            .state = state};
    pthread_mutex_lock(&lock);
    result = prepare();
    if (result == CUDA_SUCCESS && mprotect((void *)*address, rounded, PROT_READ | PROT_WRITE) != 0) {
        gf_error(
            "memory that program and device share needs the addresses from %p on, which are taken in this "
            "process.",
            (void *)*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        struct gf_req_sessionFill zero = {.stream = wire_stream(),
                                          .address = *address,
                                          .pitch = rounded,
                                          .width = rounded,
                                          .rows = 1,
                                          .element = 1};
        result = gf_send_struct(GF_OP_sessionFill, &zero);
        unsettled = true;
    }
    if (result == CUDA_SUCCESS) {
        range->next = ranges;
        ranges = range;
    }
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS) {
        gf_window_free(*address, 0);
        free(range);
        free(state);
    }
    return result;
}

/* With the lock held. */
static void end(struct range **at) {
    struct range *range = *at;
    *at = range->next;
    madvise((void *)range->shared.address, range->pages * PAGE, MADV_DONTNEED);
    mprotect((void *)range->shared.address, range->pages * PAGE, PROT_NONE);
    free(range->state);
    free(range);
}

bool gf_shared_end(uint64_t address, bool managed) {
    pthread_mutex_lock(&lock);
    struct range **at = &ranges;
    while (*at != NULL && ((*at)->shared.address != address || (*at)->shared.managed != managed)) {
        at = &(*at)->next;
    }
    bool found = *at != NULL;
    if (found) {
        end(at);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void gf_shared_end_context(uint64_t owner) {
    pthread_mutex_lock(&lock);
    for (struct range **at = &ranges; *at != NULL;) {
        if ((*at)->owner == owner) {
            end(at);
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool gf_shared_find(uint64_t address, struct gf_shared *found) {
    if (!gf_window_contains(address)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct range *range = find(address);
    bool is = range != NULL && address - range->shared.address < range->shared.size;
    if (is) {
        *found = range->shared;
    }
    pthread_mutex_unlock(&lock);
    return is;
}
