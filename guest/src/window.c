#include "window.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blocks.h"
#include "channel.h"
#include "gpuferry/messages.h"
#include "handshake.h"
#include "hooks.h"
#include "host_call.h"
#include "log.h"
#include "pool_use.h"
#include "session.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define RUN_MAX       32 /* granules mapped by one request, which can only be unmapped as a whole */
#define HOST_PAGE     4096ull
#define HOME_ATTEMPTS 16
#define CACHE_MINIMUM (64ull << 20) /* backing without allocations that is kept all the same */

/* One granule of backing. */
struct granule {
    uint16_t live;      /* allocations that touch it */
    uint8_t run_length; /* of the run that starts here */
    uint8_t run_live;   /* its granules that have allocations */
    uint32_t run;       /* first granule of its run + 1; 0: not mapped */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The part of the window in which one device has its memory. */
struct area {
    int device;
    uint64_t base;
    uint64_t untouched; /* the address from which on nothing was ever handed out */
    struct gf_blocks blocks;
    struct granule *granules;
    uint64_t granule_high;  /* one past the last that ever was mapped */
    uint64_t mapped, empty; /* granules; empty: no allocation */
    uint64_t trimmable;     /* of these: in empty runs */
    uint64_t elsewhere;     /* bytes of the quota that arrays have */
    uint64_t credit;        /* bytes that this process may have, once it shares its lease */
};

static struct area areas[GF_DEVICES_MAX];
static int area_count;
static uint64_t area_size;
static bool claims; /* this process knows that it shares its lease */
static uint64_t next_id = 1;
static bool is_reserved; /* in this process: there is nothing else at its addresses */
static _Atomic bool streams_may_wait;
static _Atomic uint64_t work;    /* device work enqueued so far */
static _Atomic uint64_t settled; /* fenced or waited for up to here */

bool gf_window_open(void) {
    uint64_t base = gf_session.window_base, size = gf_session.window_size;
    void *wanted = (void *)base;
    void *got = mmap(wanted, size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    is_reserved = got == wanted;
    if (!is_reserved) {
        /* Not fatal: host memory there would only be taken for device memory where an address says which. */
        gf_info("the window %p+%llu cannot be reserved in this process: %s", wanted, (unsigned long long)size,
                got == MAP_FAILED ? strerror(errno) : "the kernel chose another place");
        if (got != MAP_FAILED) {
            munmap(got, size);
        }
    }
    uint64_t granularity = gf_session.granularity;
    area_count = gf_session.device_count > 0 ? gf_session.device_count : 1;
    area_size = size / (uint64_t)area_count / granularity * granularity;
    for (int i = 0; i < area_count; i++) {
        struct area *a = &areas[i];
        a->device = i;
        a->base = a->untouched = base + (uint64_t)i * area_size;
        a->granules = mmap(NULL, area_size / granularity * sizeof *a->granules, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (a->granules == MAP_FAILED || !gf_blocks_init(&a->blocks, a->base, area_size)) {
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

static uint64_t granule_at(const struct area *a, uint64_t address) {
    return (address - a->base) / gf_session.granularity;
}

static void send_unmap(const struct area *a, uint64_t first, uint64_t count) {
    struct gf_req_sessionMemUnmap request = {.address = a->base + first * gf_session.granularity,
                                             .size = count * gf_session.granularity};
    gf_send_struct(GF_OP_sessionMemUnmap, &request);
}

static void send_map(const struct area *a, uint64_t first, uint64_t count) {
    struct gf_req_sessionMemMapOn request = {.address = a->base + first * gf_session.granularity,
                                             .size = count * gf_session.granularity,
                                             .device = a->device};
    struct gf_req_sessionMemMap plain = {request.address, request.size};
    if (a->device == 0) {
        gf_send_struct(GF_OP_sessionMemMap, &plain); /* which servers of every release know */
    } else {
        gf_send_struct(GF_OP_sessionMemMapOn, &request);
    }
}

static void unmap_run(struct area *a, uint64_t first) {
    struct granule *granules = a->granules;
    uint64_t length = granules[first].run_length;
    send_unmap(a, first, length);
    memset(&granules[first], 0, length * sizeof *granules);
    a->mapped -= length;
    a->empty -= length;
    a->trimmable -= length;
}

/* Gives back empty runs until at most `keep` granules are trimmable. */
static void trim(struct area *a, uint64_t keep) {
    const struct granule *granules = a->granules;
    for (uint64_t i = 0; i < a->granule_high && a->trimmable > keep;) {
        uint64_t length = granules[i].run == i + 1 ? granules[i].run_length : 1;
        if (granules[i].run == i + 1 && granules[i].run_live == 0) {
            unmap_run(a, i);
        }
        i += length;
    }
}

/* A large allocation's backing goes when it does, as the driver's does: a kernel that still uses it must
 * fail, and another session may need the memory. Small ones would ask the server for every pair of calls. */
static void trim_between(struct area *a, uint64_t first, uint64_t last) {
    const struct granule *granules = a->granules;
    if (gf_host_calls_pending()) {
        return; /* the server would have to wait for the device before the same pages are mapped again */
    }
    for (uint64_t i = first; i <= last; i++) {
        if (granules[i].run == i + 1 && granules[i].run_live == 0) {
            unmap_run(a, i);
        }
    }
}

static void set_live(struct area *a, uint64_t index, int change) {
    struct granule *granule = &a->granules[index];
    bool was = granule->live > 0;
    granule->live = (uint16_t)(granule->live + change);
    if (granule->run == 0 || was == (granule->live > 0)) {
        return;
    }
    struct granule *run = &a->granules[granule->run - 1];
    if (was) {
        a->empty++;
        a->trimmable += --run->run_live == 0 ? run->run_length : 0;
    } else {
        a->empty--;
        a->trimmable -= run->run_live++ == 0 ? run->run_length : 0;
    }
}

static void map_run(struct area *a, uint64_t first, uint64_t length) {
    struct granule *granules = a->granules;
    send_map(a, first, length);
    granules[first].run_length = (uint8_t)length;
    for (uint64_t i = first; i < first + length; i++) {
        granules[i].run = (uint32_t)first + 1;
    }
    granules[first].run_live = (uint8_t)length; /* only what an allocation touches is mapped */
    a->mapped += length;
    a->granule_high = first + length > a->granule_high ? first + length : a->granule_high;
}

/* Bytes of the quota that this process has. */
static uint64_t held(const struct area *a) {
    return a->mapped * gf_session.granularity + a->elsewhere;
}

/* Whether other processes have the lease too. What was mapped until this is noticed, the server claims. */
static bool shared(void) {
    if (!claims && atomic_load_explicit(&gf_session.shared, memory_order_relaxed)) {
        claims = true;
        for (int i = 0; i < area_count; i++) {
            areas[i].credit = held(&areas[i]);
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
static CUresult claim(struct area *a, uint64_t wanted, uint64_t *left) {
    struct gf_req_sessionMemoryClaimOn request = {.wanted = wanted, .device = a->device};
    struct gf_req_sessionMemoryClaim plain = {wanted};
    struct gf_rep_sessionMemoryClaimOn reply = {0};
    struct gf_call call = {.op = GF_OP_sessionMemoryClaimOn, .reply = &reply, .reply_size = sizeof reply};
    struct iovec body = {&request, sizeof request};
    if (a->device == 0) { /* which servers of every release know */
        call.op = GF_OP_sessionMemoryClaim;
        body = (struct iovec){&plain, sizeof plain};
    }
    CUresult result = gf_call_parts(&call, &body, 1);
    free(call.payload);
    if (call.done && call.status == CUDA_SUCCESS) {
        a->credit = reply.credit;
        *left = reply.left;
    }
    return result;
}

/* Others may claim what this process does not have any more. */
static void keep_what_is_held(struct area *a) {
    if (claims && a->credit > held(a)) {
        a->credit = held(a);
        struct gf_req_sessionMemoryKeepOn request = {.credit = a->credit, .device = a->device};
        struct gf_req_sessionMemoryKeep plain = {request.credit};
        if (a->device == 0) {
            gf_send_struct(GF_OP_sessionMemoryKeep, &plain);
        } else {
            gf_send_struct(GF_OP_sessionMemoryKeepOn, &request);
        }
    }
}

/* Room for so many bytes more, if need be in place of backing that nobody uses. */
static CUresult make_room(struct area *a, uint64_t bytes) {
    uint64_t limit = gf_session.quota, left;
    if (bytes > limit) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (shared_by_now()) {
        CUresult result = held(a) + bytes <= a->credit ? CUDA_SUCCESS : claim(a, held(a) + bytes, &left);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) {
            return result;
        }
        limit = a->credit;
    }
    if (held(a) + bytes > limit) {
        uint64_t excess = (held(a) + bytes - limit + gf_session.granularity - 1) / gf_session.granularity;
        if (excess > a->trimmable) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        trim(a, a->trimmable - excess);
    }
    return CUDA_SUCCESS;
}

/* Backing for granules first…last, which are marked live. */
static CUresult back(struct area *a, uint64_t first, uint64_t last) {
    const struct granule *granules = a->granules;
    uint64_t missing = 0;
    for (uint64_t i = first; i <= last; i++) {
        missing += granules[i].run == 0;
    }
    CUresult result = missing > 0 ? make_room(a, missing * gf_session.granularity) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (uint64_t i = first; i <= last; i++) {
        uint64_t length = 0;
        while (i + length <= last && length < RUN_MAX && granules[i + length].run == 0) {
            length++;
        }
        if (length > 0) {
            map_run(a, i, length);
            i += length - 1;
        }
    }
    return CUDA_SUCCESS;
}

bool gf_window_charge(int device, uint64_t bytes) {
    struct area *a = &areas[device];
    pthread_mutex_lock(&lock);
    bool fits = make_room(a, bytes) == CUDA_SUCCESS;
    a->elsewhere += fits ? bytes : 0;
    pthread_mutex_unlock(&lock);
    return fits;
}

void gf_window_refund(int device, uint64_t bytes) {
    struct area *a = &areas[device];
    pthread_mutex_lock(&lock);
    a->elsewhere -= bytes;
    keep_what_is_held(a);
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

/* Whether the runs in a block lie in it; those that nobody uses are given back. */
static bool runs_within(struct area *a, const struct gf_block *block) {
    const struct granule *granules = a->granules;
    uint64_t first = granule_at(a, block->address), last = granule_at(a, block->address + block->size - 1);
    for (uint64_t i = first; i <= last; i++) {
        uint64_t run = granules[i].run;
        if (run == 0 || (run - 1 >= first && run - 1 + granules[run - 1].run_length <= last + 1)) {
            continue;
        }
        if (granules[run - 1].run_live > 0) {
            return false;
        }
        unmap_run(a, run - 1);
    }
    return true;
}

/* A block for the home of physical memory: those that share a run with another are passed over. */
static struct gf_block *take_home(struct area *a, uint64_t size, uint64_t *freed_at, uint64_t *freed_stream) {
    struct gf_block *passed[HOME_ATTEMPTS], *block = NULL;
    uint64_t at[HOME_ATTEMPTS], stream[HOME_ATTEMPTS];
    int count = 0;
    while (count < HOME_ATTEMPTS) {
        block = gf_blocks_take(&a->blocks, size, gf_session.granularity, 0, freed_at, freed_stream);
        if (block == NULL || runs_within(a, block)) {
            break;
        }
        at[count] = *freed_at;
        stream[count] = *freed_stream;
        passed[count++] = block;
        block = NULL;
    }
    while (count-- > 0) {
        gf_blocks_give(&a->blocks, passed[count], at[count], stream[count]);
    }
    return block;
}

static void touch(struct area *a, const struct gf_block *block) {
    uint64_t end = block->address + block->size;
    a->untouched = end > a->untouched ? end : a->untouched;
}

void gf_window_stream_may_wait(void) {
    atomic_store_explicit(&streams_may_wait, true, memory_order_relaxed);
}

/* Whether whoever takes what that stream freed may be made to wait for it. */
static bool may_depend(uint64_t pool, uint64_t freed_stream) {
    bool endless = freed_stream != 0 && atomic_load_explicit(&streams_may_wait, memory_order_relaxed);
    return gf_pool_may_depend(pool) && !endless;
}

/* A block for an allocation. Where it may not wait for the stream that freed it, one that nobody has had. */
static struct gf_block *take(struct area *a, uint64_t size, uint64_t align, uint64_t pool, uint64_t stream,
                             uint64_t *freed_at, uint64_t *freed_stream) {
    struct gf_block *block = gf_blocks_take(&a->blocks, size, align, 0, freed_at, freed_stream);
    if (block == NULL || !in_use(*freed_at, *freed_stream, stream) || may_depend(pool, *freed_stream)) {
        return block;
    }
    uint64_t before, stream_before;
    struct gf_block *fresh = gf_blocks_take(&a->blocks, size, align, a->untouched, &before, &stream_before);
    if (fresh != NULL) {
        gf_blocks_give(&a->blocks, block, *freed_at, *freed_stream);
        *freed_at = *freed_stream = 0;
        block = fresh;
    }
    return block;
}

/* What a block is in the books of its pool: what was asked for, without the rest of our granules. */
static int64_t counted(const struct gf_block *block) {
    return (int64_t)((block->requested + GF_BLOCK_ALIGN - 1) / GF_BLOCK_ALIGN * GF_BLOCK_ALIGN);
}

static CUresult allocate(int device, uint64_t size, uint64_t owner, uint64_t pool, uint64_t stream, bool home,
                         uint64_t alignment, uint64_t *address) {
    struct area *a = &areas[device];
    uint64_t granularity = gf_session.granularity, freed_at, freed_stream;
    if (size > gf_session.quota || size > area_size) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool large = size >= granularity / 2;
    uint64_t rounded = large ? (size + granularity - 1) / granularity * granularity
                             : (size + alignment - 1) / alignment * alignment;
    pthread_mutex_lock(&lock);
    struct gf_block *block =
        home ? take_home(a, rounded, &freed_at, &freed_stream)
             : take(a, rounded, large ? granularity : alignment, pool, stream, &freed_at, &freed_stream);
    if (block == NULL) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t first = granule_at(a, block->address), last = granule_at(a, block->address + block->size - 1);
    for (uint64_t i = first; i <= last; i++) {
        set_live(a, i, 1);
    }
    CUresult result = back(a, first, last);
    if (result != CUDA_SUCCESS) {
        for (uint64_t i = first; i <= last; i++) {
            set_live(a, i, -1);
        }
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
    block->begins = 0;
    block->token = NULL;
    gf_pool_count(pool, counted(block));
    *address = block->address;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult gf_window_alloc(int device, uint64_t size, uint64_t owner, uint64_t pool, uint64_t stream,
                         uint64_t *address) {
    return allocate(device, size, owner, pool, stream, false, GF_BLOCK_ALIGN, address);
}

CUresult gf_window_alloc_pages(int device, uint64_t size, uint64_t owner, uint64_t *address) {
    return allocate(device, size, owner, 0, 0, false, HOST_PAGE, address);
}

CUresult gf_window_home(int device, uint64_t size, uint64_t *address) {
    return allocate(device, size, 0, 0, 0, true, GF_BLOCK_ALIGN, address);
}

/* Addresses with nothing behind them. Lock held. */
static struct gf_block *take_bare(struct area *a, uint64_t size, uint64_t alignment) {
    const struct granule *granules = a->granules;
    uint64_t granularity = gf_session.granularity, freed_at, freed_stream;
    uint64_t least = alignment > granularity ? alignment : granularity;
    if (size > area_size || least > area_size) {
        return NULL;
    }
    uint64_t rounded = (size + granularity - 1) / granularity * granularity;
    struct gf_block *block = gf_blocks_take(&a->blocks, rounded, least, 0, &freed_at, &freed_stream);
    if (block != NULL) {
        touch(a, block);
        /* Backing that was left behind these addresses would be in the way of what is mapped there. */
        uint64_t first = granule_at(a, block->address),
                 last = granule_at(a, block->address + block->size - 1);
        for (uint64_t i = first; i <= last && i < a->granule_high; i++) {
            if (granules[i].run != 0 && granules[granules[i].run - 1].run_live == 0) {
                unmap_run(a, granules[i].run - 1);
            }
        }
        block->requested = block->owner = block->pool = block->begins = 0;
        block->synchronous = block->reserved = block->imported = false;
        block->token = NULL;
        block->id = next_id++;
    }
    return block;
}

CUresult gf_window_reserve(uint64_t size, uint64_t alignment, uint64_t *address) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = take_bare(&areas[0], size, alignment);
    if (block != NULL) {
        block->reserved = true;
        *address = block->address;
    }
    pthread_mutex_unlock(&lock);
    return block == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult gf_window_import(int device, uint64_t size, uint64_t offset, uint64_t bytes, uint64_t owner,
                          uint64_t *address) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = take_bare(&areas[device], size, 0);
    if (block != NULL) {
        gf_send(GF_OP_sessionFence, NULL, 0); /* what used these addresses may be under way */
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
        gf_send_struct(GF_OP_sessionMemUnmap, &request);
    }
    gf_blocks_give(&area_of(block->address)->blocks, block, atomic_load(&work), 0);
}

void gf_window_import_end(uint64_t address, bool mapped) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    if (block != NULL && block->imported) {
        end_import(block, mapped);
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
        result = gf_call_struct(GF_OP_sessionExportMemory, &request, sizeof request, NULL, 0);
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
    if (block != NULL && block->id == id) {
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
    bool within = block != NULL && block->reserved && size <= block->size - (address - block->address);
    return within ? block : NULL;
}

CUresult gf_window_unreserve(uint64_t address, uint64_t size) {
    uint64_t granularity = gf_session.granularity;
    pthread_mutex_lock(&lock);
    struct gf_block *block = reserved(address, size);
    bool found = block != NULL && block->address == address && size > 0 &&
                 block->size == (size + granularity - 1) / granularity * granularity;
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

static void give(struct gf_block *block, uint64_t stream) {
    if (block->imported) {
        end_import(block, true);
        return;
    }
    end_export(block);
    struct area *a = area_of(block->address);
    uint64_t first = granule_at(a, block->address), last = granule_at(a, block->address + block->size - 1);
    uint64_t block_size = block->size;
    gf_pool_count(block->pool, -counted(block));
    gf_blocks_give(&a->blocks, block, atomic_load(&work), stream);
    for (uint64_t i = first; i <= last; i++) {
        set_live(a, i, -1);
    }
    if (block_size >= gf_session.granularity) {
        trim_between(a, first, last);
    }
    uint64_t cache = gf_session.quota / 4 > CACHE_MINIMUM ? gf_session.quota / 4 : CACHE_MINIMUM;
    if (shared() && cache > CACHE_MINIMUM) {
        cache = CACHE_MINIMUM; /* others need it */
    }
    if (a->trimmable * gf_session.granularity > cache) {
        trim(a, cache / gf_session.granularity / 2);
    }
    keep_what_is_held(a);
}

CUresult gf_window_free(uint64_t address, uint64_t stream) {
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    bool found = block != NULL && block->address == address && !block->reserved && !block->imported;
    if (found) {
        give(block, stream);
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Lock held. */
static void free_owned(struct area *a, uint64_t owner) {
    bool any = false;
    for (struct gf_block *block = a->blocks.first; block != NULL;) {
        if (block->used && block->owner == owner) {
            /* What follows may be joined with it; what is before it stays before it. */
            struct gf_block *before = block->before;
            give(block, 0);
            block = before != NULL ? before : a->blocks.first;
            any = true;
        }
        block = block->after;
    }
    if (any || area_count == 1) {
        trim(a, 0);
    }
}

void gf_window_free_context(uint64_t owner) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < area_count; i++) {
        free_owned(&areas[i], owner);
    }
    pthread_mutex_unlock(&lock);
}

bool gf_window_find(uint64_t address, struct gf_allocation *allocation) {
    if (!gf_window_contains(address)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_block *block = gf_blocks_find(&area_of(address)->blocks, address);
    bool found = block != NULL && address - block->address - block->begins < block->requested;
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
    bool found = block != NULL && address - block->address < block->requested;
    if (found) {
        block->synchronous = synchronous;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_window_owns(uint64_t address) {
    return is_reserved && gf_window_contains(address);
}

bool gf_window_contains(uint64_t address) {
    return address - gf_session.window_base < gf_session.window_size;
}

CUresult gf_window_info(int device, uint64_t *free, uint64_t *total) {
    struct area *a = &areas[device];
    uint64_t limit = gf_session.devices[device].total_memory;
    limit = gf_session.quota < limit ? gf_session.quota : limit;
    uint64_t left = 0;
    pthread_mutex_lock(&lock);
    CUresult result = shared_by_now() ? claim(a, 0, &left) : CUDA_SUCCESS;
    uint64_t used = (a->mapped - a->empty) * gf_session.granularity + a->elsewhere;
    uint64_t usable = claims ? a->credit + left : limit;
    pthread_mutex_unlock(&lock);
    *total = limit;
    *free = used < usable ? usable - used : 0;
    return result;
}
