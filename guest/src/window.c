#include "window.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backing.h"
#include "blocks.h"
#include "channel.h"
#include "gpuferry/messages.h"
#include "handshake.h"
#include "hooks.h"
#include "host_call.h"
#include "log.h"
#include "pool_use.h"
#include "session.h"
#include "unmaps.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define HOST_PAGE 4096ull
#define ATTEMPTS  16 /* to find a block that is apart */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The part of the window in which one device has its memory. */
struct area {
    uint64_t untouched; /* the address from which on nothing was ever handed out */
    struct gf_blocks blocks;
    struct gf_backing backing;
    uint64_t unmaps,
        unmapped_at; /* of its backing, when that was last looked at; the work that was there then */
};

static struct area areas[GF_DEVICES_MAX];
static int area_count;
static uint64_t area_size;
static uint64_t next_id = 1;
static bool is_reserved; /* in this process: there is nothing else at its addresses */
static _Atomic bool streams_may_wait;
static _Atomic uint64_t work;    /* device work enqueued so far */
static _Atomic uint64_t settled; /* fenced or waited for up to here */
static _Atomic bool given_back;  /* to the other processes of the lease, which may not know it yet */

/* False, and errno: not there. It is no fixed mapping: of an address that is not to be had ThreadSanitizer
 * makes 0, where there would be one then. */
static bool map_there(uint64_t address, uint64_t size, int protection) {
    void *wanted = (void *)address;
    void *got = mmap(wanted, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got != wanted && got != MAP_FAILED) {
        munmap(got, size);
        errno = EEXIST;
    }
    return got == wanted;
}

bool gf_window_open(void) {
    uint64_t base = gf_session.window_base, size = gf_session.window_size;
    is_reserved = map_there(base, size, PROT_NONE);
    if (!is_reserved) {
        /* Not fatal: host memory there would only be taken for device memory where an address says which. */
        gf_info("the window %p+%llu cannot be reserved in this process: %s", (void *)base,
                (unsigned long long)size, strerror(errno));
    }
    uint64_t granularity = gf_session.granularity;
    area_count = gf_session.device_count > 0 ? gf_session.device_count : 1;
    area_size = size / (uint64_t)area_count / granularity * granularity;
    for (int i = 0; i < area_count; i++) {
        struct area *a = &areas[i];
        /* What a program takes for device memory, a little before the first, is still an address of the
         * window. */
        a->untouched = base + (uint64_t)i * area_size + granularity;
        if (!gf_backing_init(&a->backing, i, a->untouched, area_size - granularity) ||
            !gf_blocks_init(&a->blocks, a->untouched, area_size - granularity)) {
            return false;
        }
    }
    return true;
}

int gf_window_device(uint64_t address) {
    uint64_t place = (address - gf_session.window_base) / area_size;
    return place < (uint64_t)area_count ? (int)place : 0;
}

/* Where an address of the window lies. */
static struct area *area_of(uint64_t address) {
    return &areas[gf_window_device(address)];
}

void gf_window_copy_enqueued(void) {
    atomic_fetch_add(&work, 1);
}

void gf_window_work_enqueued(void) {
    gf_hook(GF_BEFORE_WORK);
    gf_window_copy_enqueued();
}

uint64_t gf_window_work(void) {
    return atomic_load(&work);
}

void gf_window_synchronized(uint64_t through) {
    uint64_t before = atomic_load(&settled);
    while (before < through && !atomic_compare_exchange_weak(&settled, &before, through)) {
    }
}

bool gf_window_charge(int device, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    bool fits = gf_backing_charge(&areas[device].backing, bytes);
    pthread_mutex_unlock(&lock);
    return fits;
}

static void note_given_back(bool any) {
    if (any) {
        atomic_store(&given_back, true);
    }
}

void gf_window_settle(bool behind_work) {
    struct gf_req_sessionMemoryReturned request = {.behind_work = behind_work};
    if (atomic_load_explicit(&given_back, memory_order_relaxed) && atomic_exchange(&given_back, false)) {
        CUresult result = gf_call_struct(GF_OP_sessionMemoryReturned, &request, sizeof request, NULL, 0);
        note_given_back(result == CUDA_ERROR_NOT_READY); /* is asked again after the next wait */
    }
}

CUresult gf_window_waited(CUresult result) {
    result = gf_pools_waited(result);
    if (result == CUDA_SUCCESS) {
        gf_window_settle(false);
    }
    return result;
}

void gf_window_refund(int device, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    note_given_back(gf_backing_refund(&areas[device].backing, bytes));
    pthread_mutex_unlock(&lock);
}

/* Whether work that is under way may still use what was freed, for all that the stream knows. */
static bool in_use(uint64_t freed_at, uint64_t freed_stream, uint64_t stream) {
    bool same_stream = stream != 0 && freed_stream == stream;
    return freed_at > atomic_load(&settled) && !same_stream;
}

static void settle(uint64_t freed_at, uint64_t freed_stream, uint64_t stream) {
    if (in_use(freed_at, freed_stream, stream)) {
        uint64_t through = atomic_load(&work);
        gf_send(GF_OP_sessionFence, NULL, 0);
        gf_window_synchronized(through);
    }
}

static void touch(struct area *a, const struct gf_block *block) {
    uint64_t end = block->address + block->size;
    a->untouched = end > a->untouched ? end : a->untouched;
}

void gf_window_stream_may_wait(void) {
    atomic_store_explicit(&streams_may_wait, true, memory_order_relaxed);
}

/* What is wanted of addresses. */
struct want {
    uint64_t size, alignment;
    uint64_t pool, stream; /* in whose order; 0: nobody's */
    bool apart;            /* what is behind them was not asked for together with what others use */
};

/* Whether whoever takes memory may be made to wait for all work there is: not where some of it may be waiting
 * for the program. */
static bool may_depend(uint64_t pool) {
    return gf_pool_may_depend(pool) && !atomic_load_explicit(&streams_may_wait, memory_order_relaxed);
}

/* Whether memory that was given back may still be there, until work is done that waits for the program. */
static bool is_going(struct area *a, const struct gf_block *block) {
    if (a->unmaps != a->backing.unmaps) {
        a->unmaps = a->backing.unmaps;
        a->unmapped_at = atomic_load(&work);
    }
    return atomic_load_explicit(&streams_may_wait, memory_order_relaxed) &&
           a->unmapped_at > atomic_load(&settled) &&
           gf_backing_was_there(&a->backing, block->address, block->size);
}

static bool is_apart(struct area *a, const struct want *want, const struct gf_block *block) {
    return !want->apart || gf_backing_is_apart(&a->backing, block->address, block->size);
}

/* A block for which nothing has to be waited, else one that nobody has had. Where there is neither, work may
 * have to be waited for that uses it. */
static struct gf_block *take(struct area *a, const struct want *want, uint64_t *freed_at,
                             uint64_t *freed_stream) {
    struct gf_block *passed[ATTEMPTS], *found = NULL;
    uint64_t at[ATTEMPTS], stream[ATTEMPTS];
    int count = 0, most = want->apart ? ATTEMPTS : 1, possible = ATTEMPTS;
    while (count < most) {
        found = gf_blocks_take(&a->blocks, want->size, want->alignment, 0, freed_at, freed_stream);
        bool apart = found != NULL && is_apart(a, want, found);
        bool waits =
            found != NULL && (is_going(a, found) ||
                              (in_use(*freed_at, *freed_stream, want->stream) && !may_depend(want->pool)));
        if (found == NULL || (apart && !waits)) {
            break;
        }
        possible = apart && possible == ATTEMPTS ? count : possible;
        at[count] = *freed_at;
        stream[count] = *freed_stream;
        passed[count++] = found;
        found = NULL;
    }
    if (found == NULL && count > 0) {
        found = gf_blocks_take(&a->blocks, want->size, want->alignment, a->untouched, freed_at, freed_stream);
        *freed_at = *freed_stream = 0;
    }
    if (found == NULL && possible < count) {
        found = passed[possible];
        *freed_at = at[possible];
        *freed_stream = stream[possible];
    }
    for (int i = 0; i < count; i++) {
        if (passed[i] != found) {
            gf_blocks_give(&a->blocks, passed[i], at[i], stream[i]);
        }
    }
    return found;
}

/* What a block is in the books of its pool: what was asked for, without the rest of our granules. */
static int64_t counted(const struct gf_block *block) {
    return (int64_t)((block->requested + GF_BLOCK_ALIGN - 1) / GF_BLOCK_ALIGN * GF_BLOCK_ALIGN);
}

/* Who is to know of an allocation: of physical memory's home, and of what is only ours, nobody. */
enum use { OPEN, OURS, HOME };

static CUresult allocate(int device, uint64_t size, uint64_t owner, uint64_t pool, uint64_t stream,
                         enum use use, uint64_t alignment, uint64_t *address) {
    struct area *a = &areas[device];
    uint64_t granularity = gf_session.granularity, freed_at, freed_stream;
    if (size > gf_session.quota || size > area_size) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool large = size >= granularity / 2;
    uint64_t rounded = large ? (size + granularity - 1) / granularity * granularity
                             : (size + alignment - 1) / alignment * alignment;
    pthread_mutex_lock(&lock);
    const struct want want = {rounded, large ? granularity : alignment, pool, stream, use == HOME};
    struct gf_block *block = take(a, &want, &freed_at, &freed_stream);
    if (block == NULL) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = gf_backing_use(&a->backing, block->address, block->size);
    if (result != CUDA_SUCCESS) {
        gf_blocks_give(&a->blocks, block, freed_at, freed_stream);
        pthread_mutex_unlock(&lock);
        return result;
    }
    touch(a, block);
    settle(freed_at, freed_stream, stream);
    block->requested = size;
    block->owner = owner;
    block->id = next_id++;
    block->pool = pool;
    block->synchronous = block->reserved = block->imported = false;
    block->hidden = use != OPEN;
    block->begins = 0;
    block->token = NULL;
    gf_pool_count(pool, counted(block));
    *address = block->address;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult gf_window_alloc(int device, uint64_t size, uint64_t owner, uint64_t pool, uint64_t stream,
                         uint64_t *address) {
    return allocate(device, size, owner, pool, stream, OPEN, GF_BLOCK_ALIGN, address);
}

CUresult gf_window_alloc_hidden(int device, uint64_t size, uint64_t owner, uint64_t *address) {
    return allocate(device, size, owner, 0, 0, OURS, GF_BLOCK_ALIGN, address);
}

CUresult gf_window_alloc_pages(int device, uint64_t size, uint64_t owner, uint64_t *address) {
    return allocate(device, size, owner, 0, 0, OPEN, HOST_PAGE, address);
}

CUresult gf_window_home(int device, uint64_t size, uint64_t *address) {
    return allocate(device, size, 0, 0, 0, HOME, GF_BLOCK_ALIGN, address);
}

/* Addresses with nothing behind them. Lock held. */
static struct gf_block *take_bare(struct area *a, uint64_t size, uint64_t alignment, uint64_t *freed_at,
                                  uint64_t *freed_stream) {
    uint64_t granularity = gf_session.granularity;
    uint64_t least = alignment > granularity ? alignment : granularity;
    if (size > area_size || least > area_size) {
        return NULL;
    }
    uint64_t rounded = (size + granularity - 1) / granularity * granularity;
    const struct want want = {.size = rounded, .alignment = least, .apart = true};
    struct gf_block *block = take(a, &want, freed_at, freed_stream);
    if (block != NULL) {
        touch(a, block);
        /* Backing that was left behind these addresses would be in the way of what is mapped there. */
        gf_backing_clear(&a->backing, block->address, block->size);
        block->requested = block->owner = block->pool = block->begins = 0;
        block->synchronous = block->reserved = block->imported = block->hidden = false;
        block->token = NULL;
        block->id = next_id++;
    }
    return block;
}

CUresult gf_window_reserve(uint64_t size, uint64_t alignment, uint64_t *address) {
    uint64_t freed_at, freed_stream;
    pthread_mutex_lock(&lock);
    struct gf_block *block = take_bare(&areas[0], size, alignment, &freed_at, &freed_stream);
    if (block != NULL) {
        block->reserved = true;
        block->requested = size;
        *address = block->address;
    }
    pthread_mutex_unlock(&lock);
    return block == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult gf_window_import(int device, uint64_t size, uint64_t offset, uint64_t bytes, uint64_t owner,
                          uint64_t *address) {
    uint64_t freed_at, freed_stream;
    pthread_mutex_lock(&lock);
    struct gf_block *block = take_bare(&areas[device], size, 0, &freed_at, &freed_stream);
    if (block != NULL) {
        settle(freed_at, freed_stream, 0);
        atomic_store(&gf_session.watched, true);
        block->imported = true;
        block->owner = owner;
        block->begins = offset;
        block->requested = bytes;
        *address = block->address;
    }
    pthread_mutex_unlock(&lock);
    return block == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Lock held. */
static void end_import(struct gf_block *block, bool mapped) {
    struct gf_req_sessionMemUnmap request = {.address = block->address, .size = block->size};
    if (mapped) {
        gf_hook(GF_BEFORE_UNMAP);
        gf_send_struct(GF_OP_sessionMemUnmap, &request);
        gf_unmaps_note();
    }
    gf_blocks_give(&area_of(block->address)->blocks, block, atomic_load(&work), 0);
}

void gf_window_import_end(uint64_t address, bool mapped) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    if (block != NULL && block->imported) {
        end_import(block, mapped);
        note_given_back(mapped); /* if nobody else has it */
    }
    pthread_mutex_unlock(&lock);
}

/* The server knows it when this returns. Lock held; whoever reads the answer does not take it. */
static CUresult make_token(struct gf_block *block) {
    struct gf_req_sessionExportMemory request = {.address = block->address, .size = block->requested};
    block->token = malloc(GF_TOKEN_SIZE);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (block->token != NULL && gf_random_bytes(block->token, GF_TOKEN_SIZE)) {
        memcpy(request.token, block->token, GF_TOKEN_SIZE);
        atomic_store(&gf_session.watched, true);
        result = gf_call_making(GF_OP_sessionExportMemory, &request, sizeof request, NULL, 0);
    }
    if (result != CUDA_SUCCESS) {
        free(block->token);
        block->token = NULL;
    }
    return result;
}

CUresult gf_window_export(uint64_t address, uint64_t id, uint8_t token[GF_TOKEN_SIZE]) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    if (block != NULL && (id == 0 || block->id == id)) {
        result = block->token == NULL ? make_token(block) : CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        memcpy(token, block->token, GF_TOKEN_SIZE);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* No other process may open it any more. Lock held. */
static void end_export(struct gf_block *block) {
    struct gf_req_sessionExportEnd request;
    if (block->token != NULL) {
        memcpy(request.token, block->token, GF_TOKEN_SIZE);
        gf_send_struct(GF_OP_sessionExportEnd, &request);
        free(block->token);
        block->token = NULL;
    }
}

/* The reserved block that holds a range. Lock held. */
static struct gf_block *reserved(uint64_t address, uint64_t size) {
    struct gf_block *block =
        gf_window_contains(address) ? gf_blocks_find(&area_of(address)->blocks, address) : NULL;
    uint64_t offset = block == NULL ? 0 : address - block->address;
    bool within =
        block != NULL && block->reserved && offset < block->requested && size <= block->requested - offset;
    return within ? block : NULL;
}

CUresult gf_window_unreserve(uint64_t address, uint64_t size) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = reserved(address, size);
    bool found = block != NULL && block->address == address && block->requested == size;
    if (found) {
        block->reserved = false;
        gf_blocks_give(&area_of(address)->blocks, block, atomic_load(&work), 0);
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool gf_window_is_reserved(uint64_t address, uint64_t size) {
    pthread_mutex_lock(&lock);
    bool found = reserved(address, size) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

typedef void how(struct gf_blocks *, struct gf_block *, uint64_t freed_at, uint64_t freed_stream);

static void give(struct gf_block *block, uint64_t stream, how *give_block) {
    if (block->imported) {
        end_import(block, true);
        return;
    }
    bool exported = block->token != NULL;
    end_export(block);
    struct area *a = area_of(block->address);
    uint64_t address = block->address, size = block->size;
    gf_pool_count(block->pool, -counted(block));
    give_block(&a->blocks, block, atomic_load(&work), stream);
    note_given_back(gf_backing_leave(&a->backing, address, size, exported));
}

static CUresult free_block(uint64_t address, uint64_t stream, how *give_block) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    bool found = block != NULL && block->address == address && !block->reserved && !block->imported;
    if (found) {
        give(block, stream, give_block);
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_window_free(uint64_t address, uint64_t stream) {
    return free_block(address, stream, gf_blocks_give);
}

void gf_window_free_late(uint64_t address) {
    free_block(address, 0, gf_blocks_rest);
}

/* Lock held. */
static void free_owned(struct area *a, uint64_t owner) {
    bool any = false;
    for (struct gf_block *block = a->blocks.first; block != NULL;) {
        if (block->used && block->owner == owner) {
            /* What follows may be joined with it; what is before it stays before it. */
            struct gf_block *before = block->before;
            give(block, 0, gf_blocks_give);
            block = before != NULL ? before : a->blocks.first;
            any = true;
        }
        block = block->after;
    }
    if (any || area_count == 1) {
        note_given_back(gf_backing_give_back(&a->backing));
    }
}

void gf_window_free_context(uint64_t owner) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < area_count; i++) {
        free_owned(&areas[i], owner);
    }
    pthread_mutex_unlock(&lock);
}

/* Whether an address is within what its block was allocated for, as far as the program knows. */
static bool is_allocated(const struct gf_block *block, uint64_t address) {
    return block != NULL && !block->reserved && !block->hidden &&
           address - block->address - block->begins < block->requested;
}

bool gf_window_find(uint64_t address, struct gf_allocation *allocation) {
    if (!gf_window_contains(address)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    bool found = is_allocated(block, address);
    if (found) {
        *allocation = (struct gf_allocation){.address = block->address + block->begins,
                                             .size = block->requested,
                                             .owner = block->owner,
                                             .id = block->id,
                                             .pool = block->pool,
                                             .synchronous = block->synchronous,
                                             .imported = block->imported,
                                             .open = block->imported || block->token != NULL};
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_window_synchronous(uint64_t address, bool synchronous) {
    if (!gf_window_contains(address)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    bool found = is_allocated(block, address);
    if (found) {
        block->synchronous = synchronous;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_window_owns(uint64_t address) {
    return is_reserved && gf_window_contains(address);
}

/* Where the window as a whole is not to be had (ulimit -v), its parts may be. */
bool gf_window_touchable(uint64_t address, uint64_t size) {
    const int protection = PROT_READ | PROT_WRITE;
    return is_reserved ? mprotect((void *)address, size, protection) == 0
                       : map_there(address, size, protection);
}

void gf_window_untouchable(uint64_t address, uint64_t size) {
    if (is_reserved) {
        madvise((void *)address, size, MADV_DONTNEED);
        mprotect((void *)address, size, PROT_NONE);
    } else {
        munmap((void *)address, size);
    }
}

CUresult gf_window_info(int device, uint64_t *free, uint64_t *total) {
    uint64_t limit = gf_session.devices[device].total_memory, used, usable;
    limit = gf_session.quota < limit ? gf_session.quota : limit;
    pthread_mutex_lock(&lock);
    CUresult result = gf_backing_info(&areas[device].backing, limit, &used, &usable);
    pthread_mutex_unlock(&lock);
    used += gf_pools_kept(device);
    *total = limit;
    *free = used < usable ? usable - used : 0;
    return result;
}

uint64_t gf_window_held(void) {
    uint64_t held = 0;
    pthread_mutex_lock(&lock);
    for (int device = 0; device < gf_session.device_count; device++) {
        held += gf_backing_held(&areas[device].backing);
    }
    pthread_mutex_unlock(&lock);
    return held;
}

void gf_window_trim(int device) {
    pthread_mutex_lock(&lock);
    if (!gf_host_calls_pending()) { /* the server would have to wait for the device before pages come back */
        note_given_back(gf_backing_give_back(&areas[device].backing));
    }
    pthread_mutex_unlock(&lock);
}
