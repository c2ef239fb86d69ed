/* Managed memory: where its pages are best kept, and what was said of that. Nothing acts upon it, for they
 * follow whoever touches them. Who includes this defines DRIVER(name), ENTER, MANAGED(address, found): the
 * managed allocation that holds an address, DEVICES: how many there are, and STREAM(stream): whether it is
 * one.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct managed_memory {
    uint64_t base, size, id;
};

/* What was said of a part of one allocation. */
struct managed_part {
    uint64_t first, end, id;
    bool read_mostly;
    uint64_t accessed; /* a bit for each device, and the highest one for the host */
    CUmemLocation preferred, prefetched;
};

#define MANAGED_HOST_BIT (1ull << 63)

static pthread_mutex_t managed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed_part *managed_parts; /* by address; those of other ids are of memory that is gone */
static size_t managed_count, managed_capacity;

static size_t managed_index(uint64_t address) {
    size_t low = 0, high = managed_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (managed_parts[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool managed_insert(size_t at, const struct managed_part *part) {
    if (managed_count == managed_capacity) {
        size_t capacity = 2 * managed_capacity + 16;
        struct managed_part *grown = realloc(managed_parts, capacity * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        managed_parts = grown;
        managed_capacity = capacity;
    }
    memmove(&managed_parts[at + 1], &managed_parts[at], (managed_count++ - at) * sizeof *part);
    managed_parts[at] = *part;
    return true;
}

/* A part ends at an address, if one goes on over it. */
static bool managed_cut(uint64_t address) {
    size_t at = managed_index(address);
    if (at == managed_count || managed_parts[at].first >= address) {
        return true;
    }
    struct managed_part left = managed_parts[at];
    left.end = address;
    managed_parts[at].first = address;
    return managed_insert(at, &left);
}

/* Parts of this id from `first` to `end`, without a gap. */
static bool managed_cover(uint64_t first, uint64_t end, uint64_t id) {
    bool fine = managed_cut(first) && managed_cut(end);
    for (uint64_t at = first; fine && at < end;) {
        size_t i = managed_index(at);
        bool there = i < managed_count && managed_parts[i].first == at;
        uint64_t next = there                                               ? managed_parts[i].end
                        : i < managed_count && managed_parts[i].first < end ? managed_parts[i].first
                                                                            : end;
        const struct managed_part fresh = {.first = at, .end = next, .id = id};
        if (!there) {
            fine = managed_insert(i, &fresh);
        } else if (managed_parts[i].id != id) {
            managed_parts[i] = fresh;
        }
        at = next;
    }
    return fine;
}

static void managed_advise(struct managed_part *part, CUmem_advise advice, CUmemLocation location) {
    uint64_t bit =
        location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1ull << (location.id & 63) : MANAGED_HOST_BIT;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        part->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        part->preferred = location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        part->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        part->accessed |= bit;
        break;
    default:
        part->accessed &= ~bit;
    }
}

/* advice 0: it is prefetched. */
static CUresult managed_note(const struct managed_memory *memory, uint64_t address, uint64_t size, int advice,
                             CUmemLocation location) {
    pthread_mutex_lock(&managed_lock);
    bool fine = managed_cover(address, address + size, memory->id);
    for (size_t i = managed_index(address);
         fine && i < managed_count && managed_parts[i].first < address + size; i++) {
        if (advice == 0) {
            managed_parts[i].prefetched = location;
        } else {
            managed_advise(&managed_parts[i], (CUmem_advise)advice, location);
        }
    }
    pthread_mutex_unlock(&managed_lock);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUmemLocation managed_both(CUmemLocation one, CUmemLocation other) {
    bool same = one.type == other.type && (one.id == other.id || one.type == CU_MEM_LOCATION_TYPE_HOST);
    return same ? one : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
}

/* What is true of all of a range. */
static struct managed_part managed_common(const struct managed_memory *memory, uint64_t address,
                                          uint64_t size) {
    static const struct managed_part nothing;
    struct managed_part all = nothing;
    uint64_t at = address, end = address + size;
    pthread_mutex_lock(&managed_lock);
    for (size_t i = managed_index(address); at < end; i++) {
        bool there = i < managed_count && managed_parts[i].first <= at;
        const struct managed_part *part =
            there && managed_parts[i].id == memory->id ? &managed_parts[i] : &nothing;
        if (at == address) {
            all = *part;
        }
        all.read_mostly = all.read_mostly && part->read_mostly;
        all.accessed &= part->accessed;
        all.preferred = managed_both(all.preferred, part->preferred);
        all.prefetched = managed_both(all.prefetched, part->prefetched);
        at = there ? managed_parts[i].end : end; /* a gap says nothing, nor does what comes behind it */
    }
    pthread_mutex_unlock(&managed_lock);
    return all;
}

static CUresult managed_range(uint64_t address, uint64_t size, struct managed_memory *memory) {
    bool within = size > 0 && MANAGED(address, memory) && size <= memory->size - (address - memory->base);
    return within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult managed_location(CUmemLocation location) {
    switch ((int)location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id >= 0 && location.id < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUmemLocation managed_at(CUdevice device) {
    return device == CU_DEVICE_CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                                   : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult DRIVER(cuMemPrefetchAsync_v2)(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                       unsigned flags, CUstream hStream) {
    struct managed_memory memory;
    ENTER;
    CUresult result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : managed_range(devPtr, count, &memory);
    result = result == CUDA_SUCCESS ? managed_location(location) : result;
    result = result == CUDA_SUCCESS ? STREAM(hStream) : result;
    return result == CUDA_SUCCESS ? managed_note(&memory, devPtr, count, 0, location) : result;
}

CUresult DRIVER(cuMemPrefetchAsync)(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    return DRIVER(cuMemPrefetchAsync_v2)(devPtr, count, managed_at(dstDevice), 0, hStream);
}

CUresult DRIVER(cuMemAdvise_v2)(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                CUmemLocation location) {
    struct managed_memory memory;
    ENTER;
    CUresult result = managed_range(devPtr, count, &memory);
    if (result != CUDA_SUCCESS || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
        advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* the two about mostly reading, and forgetting the preferred location, name none */
    bool names_one =
        advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY;
    bool processor =
        location.type == CU_MEM_LOCATION_TYPE_DEVICE || location.type == CU_MEM_LOCATION_TYPE_HOST;
    if (advice >= CU_MEM_ADVISE_SET_ACCESSED_BY && !processor) {
        return CUDA_ERROR_INVALID_VALUE; /* a node of the host is where memory lies, not who looks at it */
    }
    result = names_one ? managed_location(location) : CUDA_SUCCESS;
    result = result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : result; /* not a prefetch's */
    return result == CUDA_SUCCESS ? managed_note(&memory, devPtr, count, advice, location) : result;
}

CUresult DRIVER(cuMemAdvise)(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return DRIVER(cuMemAdvise_v2)(devPtr, count, advice, managed_at(device));
}

CUresult DRIVER(cuStreamAttachMemAsync)(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned flags) {
    struct managed_memory memory;
    ENTER;
    if ((flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) ||
        !MANAGED(dptr, &memory) || (length != 0 && length != memory.size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags == CU_MEM_ATTACH_SINGLE && (hStream == NULL || hStream == CU_STREAM_LEGACY)) {
        return CUDA_ERROR_INVALID_VALUE; /* it is all streams' stream */
    }
    return STREAM(hStream);
}

/* The ranges of a batch, and where they are to go: entry k of `locations` is that of those from firsts[k] on;
 * NULL: nowhere. */
static CUresult managed_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                              const CUmemLocation *locations, const size_t *firsts, size_t entries,
                              CUstream stream) {
    struct managed_memory memory;
    CUresult result =
        addresses != NULL && sizes != NULL && count > 0 && stream != NULL && stream != CU_STREAM_LEGACY
            ? CUDA_SUCCESS
            : CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 0; result == CUDA_SUCCESS && k < entries; k++) {
        bool good = k == 0 ? firsts[k] == 0 : firsts[k] > firsts[k - 1];
        result = good && firsts[k] < count ? managed_location(locations[k]) : CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        result = managed_range(addresses[i], sizes[i], &memory);
    }
    result = result == CUDA_SUCCESS ? STREAM(stream) : result;
    for (size_t i = 0, k = 0; result == CUDA_SUCCESS && entries > 0 && i < count; i++) {
        k += k + 1 < entries && firsts[k + 1] <= i;
        result = managed_range(addresses[i], sizes[i], &memory);
        result =
            result == CUDA_SUCCESS ? managed_note(&memory, addresses[i], sizes[i], 0, locations[k]) : result;
    }
    return result;
}

static bool managed_places(const CUmemLocation *locations, const size_t *firsts, size_t entries,
                           unsigned long long flags) {
    return locations != NULL && firsts != NULL && entries > 0 && flags == 0;
}

CUresult DRIVER(cuMemPrefetchBatchAsync)(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                         CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                         size_t numPrefetchLocs, unsigned long long flags, CUstream hStream) {
    ENTER;
    return managed_places(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags)
               ? managed_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, hStream)
               : CUDA_ERROR_INVALID_VALUE;
}

/* What is discarded may be anything until it is written: it stays what it is. */
CUresult DRIVER(cuMemDiscardBatchAsync)(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                        unsigned long long flags, CUstream hStream) {
    ENTER;
    return flags == 0 ? managed_batch(dptrs, sizes, count, NULL, NULL, 0, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult DRIVER(cuMemDiscardAndPrefetchBatchAsync)(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                                   CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                                   size_t numPrefetchLocs, unsigned long long flags,
                                                   CUstream hStream) {
    return DRIVER(cuMemPrefetchBatchAsync)(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                           numPrefetchLocs, flags, hStream);
}

/* As the first interface numbers places. */
static int managed_device(CUmemLocation location) {
    return location.type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
           : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id
                                                          : CU_DEVICE_CPU;
}

static void managed_accessed(int *data, size_t room, uint64_t accessed) {
    size_t count = 0;
    for (int device = 0; device < DEVICES && count < room; device++) {
        if ((accessed >> device & 1) != 0) {
            data[count++] = device;
        }
    }
    if ((accessed & MANAGED_HOST_BIT) != 0 && count < room) {
        data[count++] = CU_DEVICE_CPU;
    }
    while (count < room) {
        data[count++] = CU_DEVICE_INVALID;
    }
}

static CUresult managed_attribute(void *data, size_t size, CUmem_range_attribute attribute,
                                  const struct managed_part *all) {
    bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    int value;
    if (data == NULL || size == 0 || size % sizeof value != 0 || (!list && size != sizeof value)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        value = all->read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        value = managed_device(all->preferred);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        value = managed_device(all->prefetched);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        value = (int)all->preferred.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        value = all->preferred.id;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        value = (int)all->prefetched.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        value = all->prefetched.id;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        managed_accessed(data, size / sizeof value, all->accessed);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuMemRangeGetAttributes)(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                         size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    struct managed_memory memory;
    ENTER;
    if (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = managed_range(devPtr, count, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct managed_part all = managed_common(&memory, devPtr, count);
    for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++) {
        result = managed_attribute(data[i], dataSizes[i], attributes[i], &all);
    }
    return result;
}

CUresult DRIVER(cuMemRangeGetAttribute)(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                        CUdeviceptr devPtr, size_t count) {
    return DRIVER(cuMemRangeGetAttributes)(&data, &dataSize, &attribute, 1, devPtr, count);
}

/* Pages follow whoever touches them: they are where they were last asked for, or nowhere in particular. */
CUresult DRIVER(cuMemGetLocationInfo)(CUdeviceptr ptr, size_t size, size_t summaryGranularity,
                                      size_t samplingGranularity, CUmemLocation *location_out) {
    struct managed_memory memory;
    ENTER;
    if (location_out == NULL || summaryGranularity == 0 || summaryGranularity > size ||
        samplingGranularity > summaryGranularity) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = managed_range(ptr, size, &memory);
    for (size_t at = 0; at < size && result == CUDA_SUCCESS; at += summaryGranularity) {
        size_t part = size - at < summaryGranularity ? size - at : summaryGranularity;
        location_out[at / summaryGranularity] = managed_common(&memory, ptr + at, part).prefetched;
    }
    return result;
}
