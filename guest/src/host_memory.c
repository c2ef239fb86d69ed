#include "host_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_host_range *ranges; /* sorted by address */
static size_t range_count, range_capacity;
static _Atomic size_t locked_ranges;
static uint64_t next_id = 1ull << 32; /* apart from device allocations' */

/* Index of the first range that ends behind an address. */
static size_t position(uint64_t address) {
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].address + ranges[middle].size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

CUresult gf_host_add(struct gf_host_range range, CUresult if_taken) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    size_t at = position(range.address);
    if (at < range_count && ranges[at].address < range.address + range.size) {
        result = if_taken;
    } else if (range_count == range_capacity) {
        size_t capacity = range_capacity == 0 ? 16 : 2 * range_capacity;
        struct gf_host_range *grown = realloc(ranges, capacity * sizeof *ranges);
        if (grown == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            ranges = grown;
            range_capacity = capacity;
        }
    }
    if (result == CUDA_SUCCESS) {
        memmove(&ranges[at + 1], &ranges[at], (range_count - at) * sizeof *ranges);
        range.id = next_id++;
        range.owner = gf_context_current_handle();
        ranges[at] = range;
        atomic_store(&locked_ranges, ++range_count);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* With the lock held. */
static void take(size_t at, struct gf_host_range *range) {
    *range = ranges[at];
    range_count--;
    memmove(&ranges[at], &ranges[at + 1], (range_count - at) * sizeof *ranges);
    atomic_store(&locked_ranges, range_count);
}

bool gf_host_take(uint64_t address, bool registered, struct gf_host_range *range) {
    pthread_mutex_lock(&lock);
    size_t at = position(address);
    bool found = at < range_count && ranges[at].address == address && ranges[at].registered == registered;
    if (found) {
        take(at, range);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_host_take_of(uint64_t owner, struct gf_host_range *range) {
    size_t at = 0;
    pthread_mutex_lock(&lock);
    while (at < range_count && ranges[at].owner != owner) {
        at++;
    }
    bool found = at < range_count;
    if (found) {
        take(at, range);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_host_find(uint64_t address, struct gf_host_range *range) {
    if (atomic_load_explicit(&locked_ranges, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    size_t at = position(address);
    bool found = at < range_count && ranges[at].address <= address;
    if (found) {
        *range = ranges[at];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gf_host_is_locked(const void *base, uint64_t size) {
    struct gf_host_range range;
    uint64_t address = (uint64_t)base;
    while (gf_host_find(address, &range)) { /* ranges may lie side by side */
        uint64_t left = range.size - (address - range.address);
        if (size <= left) {
            return true;
        }
        size -= left;
        address += left;
    }
    return false;
}

void gf_host_set_shared(uint64_t address) {
    pthread_mutex_lock(&lock);
    ranges[position(address)].shared = true;
    pthread_mutex_unlock(&lock);
}
