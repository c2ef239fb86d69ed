/* Physical memory is an extent of the device's memfd, or a file of its own if it can be shared. A mapping
 * maps it, access rights are page protections. Offsets in the device's file are never used twice, so all
 * memory begins as zeros, or dirty if the settings say so. */
#define _GNU_SOURCE
#include "vmm.h"
#include "config.h"
#include "later.h"
#include "log.h"
#include "memory.h"
#include "shareable.h"
#include "wire/file_limit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of physical memory, and of a mapping; to end less takes no more time than to hand it over. */
#define LEAST_LATER (2 * SIM_GRANULARITY)
#define LEAST_ASIDE (8 * SIM_GRANULARITY)
#define TABLES      (UINT64_C(1) << 30) /* bytes that one table of page tables maps */
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

struct physical {
    struct sim_object object; /* the handle; each mapping holds a reference as well */
    struct sim_device *device;
    CUmemAllocationProp properties;
    int fd; /* of the device's file, or its own */
    uint64_t offset, size;
    unsigned handles; /* cuMemCreate and cuMemRetainAllocationHandle, less cuMemRelease */
    bool shareable;   /* has a file of its own */
    bool charged;     /* to its device: not if it is another process's memory */
};

/* Guards `handles`, the files and the relation of reservations to mappings. Taken before any tree's lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_ranges reservations = {.lock = PTHREAD_RWLOCK_INITIALIZER};
static struct {
    int fd; /* 0: not open yet */
    uint64_t size;
} files[SIM_MAX_DEVICES];

static void give_back(const struct physical *physical) {
    if (physical->shareable) /* the memory ends with its last descriptor and mapping, wherever they are */
        close(physical->fd);
    else if (fallocate(physical->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
                       (off_t)physical->size) != 0)
        sim_message(SIM_LOG_INFO, "cannot give back physical memory");
}

static void end(void *pointer) {
    struct physical *physical = pointer;
    give_back(physical);
    if (physical->charged)
        sim_device_parted(physical->device, physical->size);
    free(physical);
}

static void destroy(void *pointer) {
    struct physical *physical = pointer;
    if (physical->charged)
        sim_device_part(physical->device, physical->size);
    if (physical->size < LEAST_LATER)
        end(physical);
    else
        sim_later(end, physical);
}

/* Whether it names the host's memory, which is one NUMA node as far as a program is told. */
static bool is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0);
}

static CUresult check_properties(const CUmemAllocationProp *properties) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(properties && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    SIM_REQUIRE(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
                properties->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
    return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                   (properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                    properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* The same for every device, those that are not there included: CUDA does not look. */
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
    SIM_REQUIRE((unsigned)option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    SIM_TRY(check_properties(properties));
    SIM_REQUIRE(granularity);
    *granularity = SIM_GRANULARITY;
    return CUDA_SUCCESS;
}

static bool granular(uint64_t value) {
    return value % SIM_GRANULARITY == 0;
}

/* CUDA promises nothing of new physical memory; whoever relies on zeros finds out here. */
static bool soil(const struct physical *physical) {
    void *bytes =
        mmap(NULL, physical->size, PROT_READ | PROT_WRITE, MAP_SHARED, physical->fd, (off_t)physical->offset);
    if (bytes == MAP_FAILED)
        return false;
    memset(bytes, SIM_DIRT, physical->size);
    munmap(bytes, physical->size);
    return true;
}

/* Takes a fresh extent of the device's file. Lock held. */
static bool extend(struct physical *physical) {
    GF_FILE_LIMIT_FAILS;
    int ordinal = physical->device->ordinal;
    if (files[ordinal].fd == 0) {
        int fd = memfd_create("gpuferry-sim", MFD_CLOEXEC);
        if (fd == 0) { /* 0 means "none" here */
            fd = fcntl(fd, F_DUPFD_CLOEXEC, 1);
            close(0);
        }
        if (fd < 0)
            return false;
        files[ordinal].fd = fd;
    }
    if (ftruncate(files[ordinal].fd, (off_t)(files[ordinal].size + physical->size)) != 0) {
        sim_shareable_failed();
        return false;
    }
    physical->fd = files[ordinal].fd;
    physical->offset = files[ordinal].size;
    files[ordinal].size += physical->size;
    return true;
}

/* Lock held. */
static bool take_memory(struct physical *physical) {
    physical->shareable = physical->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (physical->shareable)
        physical->fd = sim_shareable_new("", physical->device, physical->size);
    if (physical->shareable ? physical->fd < 0 : !extend(physical))
        return false;
    if (!sim_config_get()->dirty || soil(physical))
        return true;
    give_back(physical);
    return false;
}

/* Gives the memory that it has a handle; else the memory is given back. */
static bool open_handle(struct physical *physical) {
    physical->handles = 1;
    bool done = sim_handle_open(physical, SIM_PHYSICAL, NULL, destroy);
    if (!done)
        give_back(physical);
    return done;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    struct sim_context *context;
    SIM_TRY(check_properties(properties));
    bool of_host = is_host(&properties->location);
    SIM_REQUIRE(of_host || properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    struct sim_device *device = !of_host ? sim_device_at(properties->location.id)
                                : sim_context_current(&context) == CUDA_SUCCESS ? context->device
                                                                                : sim_device_at(0);
    SIM_REQUIRE(device && handle && size && granular(size) && flags == 0);
    if (!of_host && (size > device->memory || !sim_device_charge(device, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *physical = calloc(1, sizeof *physical);
    if (physical) {
        physical->device = device;
        physical->properties = *properties;
        physical->size = size;
        physical->charged = !of_host;
        pthread_mutex_lock(&lock);
        bool done = take_memory(physical) && open_handle(physical);
        pthread_mutex_unlock(&lock);
        if (done) {
            *handle = physical->object.handle;
            return CUDA_SUCCESS;
        }
        free(physical);
    }
    if (!of_host)
        sim_device_refund(device, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The physical memory of a handle that the program still holds, with a reference. Lock held. */
static struct physical *acquire(CUmemGenericAllocationHandle handle) {
    struct physical *physical = sim_acquire(handle, SIM_PHYSICAL);
    if (physical && !physical->handles) {
        sim_release(physical);
        return NULL;
    }
    return physical;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    SIM_TRY(sim_enter());
    pthread_mutex_lock(&lock);
    struct physical *physical = acquire(handle);
    if (physical) {
        physical->handles--;
        sim_release(physical);
        sim_release(physical); /* the reference that the handle stands for */
    }
    pthread_mutex_unlock(&lock);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(handle);
    struct sim_range range;
    pthread_mutex_lock(&lock);
    bool found = sim_ranges_find(&sim_memory, (uint64_t)address, &range) && range.kind == SIM_RANGE_MAPPED;
    if (found) {
        struct physical *physical = range.owner;
        physical->handles++;
        sim_retain(physical);
        *handle = physical->object.handle;
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(properties);
    pthread_mutex_lock(&lock);
    struct physical *physical = acquire(handle);
    if (physical) {
        *properties = physical->properties;
        sim_release(physical);
    }
    pthread_mutex_unlock(&lock);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(shareable && flags == 0 && type != CU_MEM_HANDLE_TYPE_NONE);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    struct physical *physical = acquire(handle);
    bool possible = physical && physical->shareable;
    int fd = possible ? sim_shareable_again(physical->fd) : -1;
    if (physical)
        sim_release(physical);
    pthread_mutex_unlock(&lock);
    SIM_REQUIRE(possible);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

/* The memory is its exporter's: the device's it was made on, and charged there. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type) {
    struct sim_device *device;
    uint64_t size;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(handle && type != CU_MEM_HANDLE_TYPE_NONE);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    int fd = (int)(intptr_t)shareable;
    bool is_one = sim_shareable_check(fd, "", &device, &size) && granular(size);
    SIM_REQUIRE(is_one || shareable); /* NULL is descriptor 0 as well */
    if (!is_one)
        return CUDA_ERROR_UNKNOWN; /* NVIDIA's driver calls whatever is no such descriptor that */
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    struct physical *physical = calloc(1, sizeof *physical);
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->device = device;
    physical->properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    physical->size = size;
    physical->shareable = true;
    physical->fd = sim_shareable_again(fd);
    if (physical->fd < 0 || !open_handle(physical)) {
        free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = physical->object.handle;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(pointer && flags == 0 && size && size % SIM_PAGE == 0 && (alignment & (alignment - 1)) == 0);
    if (size > UINT64_C(1) << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = sim_pages_reserve(size, alignment > SIM_GRANULARITY ? alignment : SIM_GRANULARITY, wanted);
    range->size = size;
    range->kind = SIM_RANGE_RESERVED;
    if (!range->base || !sim_ranges_insert(&reservations, range)) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
    SIM_TRY(sim_enter());
    struct sim_range range, mapping;
    pthread_mutex_lock(&lock);
    bool whole =
        sim_ranges_find(&reservations, pointer, &range) && range.base == pointer && range.size == size;
    bool mapped =
        whole && sim_ranges_find_next(&sim_memory, pointer, &mapping) && mapping.base < pointer + size;
    if (whole && !mapped) {
        free(sim_ranges_remove(&reservations, pointer, NULL));
        sim_pages_free(pointer, size);
    }
    pthread_mutex_unlock(&lock);
    return whole && !mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Lock held. */
static CUresult map(CUdeviceptr pointer, size_t size, struct physical *physical) {
    struct sim_range reservation;
    SIM_REQUIRE(granular(pointer) && size <= physical->size);
    SIM_REQUIRE(sim_ranges_find(&reservations, pointer, &reservation));
    SIM_REQUIRE(size <= reservation.base + reservation.size - pointer);
    struct sim_range *range = sim_memory_range(SIM_RANGE_MAPPED, physical->device, NULL, size,
                                               physical->properties.requestedHandleTypes);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = pointer;
    range->owner = physical;
    range->of_host = is_host(&physical->properties.location);
    if (!sim_ranges_insert(&sim_memory, range)) { /* something is mapped there */
        free(range);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap((void *)pointer, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->fd,
             (off_t)physical->offset) == MAP_FAILED) {
        free(sim_ranges_remove(&sim_memory, pointer, NULL));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_retain(physical);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(pointer && size && flags == 0);
    pthread_mutex_lock(&lock);
    struct physical *physical = acquire(handle);
    CUresult result = !physical                        ? CUDA_ERROR_INVALID_VALUE
                      : !granular(size) || offset != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                       : map(pointer, size, physical);
    if (physical)
        sim_release(physical);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether [pointer, pointer + size) is made of whole mappings, or, if not `whole`, at least covered by
 * mappings. */
static bool covered(uint64_t pointer, uint64_t size, bool whole) {
    struct sim_range range;
    uint64_t end = pointer + size, at = pointer;
    if (!size || end < pointer)
        return false;
    while (at < end) {
        if (!sim_ranges_find(&sim_memory, at, &range) || range.kind != SIM_RANGE_MAPPED)
            return false;
        if (whole && (range.base != at || range.base + range.size > end))
            return false;
        at = range.base + range.size;
    }
    return true;
}

static void drain_devices_of(uint64_t pointer, uint64_t size) {
    uint64_t devices = 0;
    struct sim_range range;
    for (uint64_t at = pointer; at < pointer + size && sim_ranges_find(&sim_memory, at, &range);
         at = range.base + range.size)
        devices |= range.readable | range.writable | sim_device_bit(range.device);
    for (int ordinal = 0; ordinal < sim_device_count(); ordinal++)
        if (devices >> ordinal & 1)
            sim_device_drain(sim_device_at(ordinal));
}

struct aside {
    uint64_t base, size;
};

static void end_aside(void *pointer) {
    struct aside *aside = pointer;
    sim_pages_free(aside->base, aside->size);
    free(aside);
}

/* To end a mapping takes time with its pages, to move it where nobody looks takes none. What stays behind
 * is empty. */
static void move_aside(uint64_t base, uint64_t size) {
    static _Atomic bool moves = true;
    if (size < LEAST_ASIDE || !atomic_load(&moves))
        return;
    struct aside *aside = malloc(sizeof *aside);
    uint64_t offset = base % TABLES; /* whole tables of page tables move where both lie alike */
    uint64_t to = aside ? sim_pages_reserve(offset + size, TABLES, 0) : 0;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (to && mremap((void *)base, size, size, flags, (void *)(to + offset)) != MAP_FAILED) {
        *aside = (struct aside){to, offset + size};
        sim_later(end_aside, aside);
        return;
    }
    free(aside);
    atomic_store(&moves, false); /* an older kernel, which may have freed the addresses: they are not ours */
    sim_message(SIM_LOG_INFO, "mappings end where they are");
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(covered(pointer, size, true));
    drain_devices_of(pointer, size); /* what runs may use the memory */
    pthread_mutex_lock(&lock);
    bool whole = covered(pointer, size, true);
    if (whole) {
        struct sim_range range;
        for (uint64_t at = pointer; at < pointer + size; at = range.base + range.size) {
            sim_ranges_find(&sim_memory, at, &range);
            move_aside(range.base, range.size);
        }
        /* the addresses stay reserved */
        if (mmap((void *)pointer, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                 -1, 0) == MAP_FAILED) {
            pthread_mutex_unlock(&lock);
            return CUDA_ERROR_UNMAP_FAILED;
        }
        for (uint64_t at = pointer; at < pointer + size;) {
            struct sim_range *range = sim_ranges_remove(&sim_memory, at, NULL);
            at += range->size;
            sim_release(range->owner);
            free(range);
        }
    }
    pthread_mutex_unlock(&lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct rights {
    uint64_t device; /* one bit; 0: the program itself */
    bool read, write;
    int protection; /* out */
};

static bool set_rights(struct sim_range *range, void *argument) {
    struct rights *rights = argument;
    if (!rights->device)
        range->host = rights->write  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                      : rights->read ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    range->readable = rights->read ? range->readable | rights->device : range->readable & ~rights->device;
    range->writable = rights->write ? range->writable | rights->device : range->writable & ~rights->device;
    /* page protections are for all devices, and the program, at once */
    bool writable = range->writable || range->host == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    bool readable = range->readable || range->host != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    rights->protection = writable ? PROT_READ | PROT_WRITE : readable ? PROT_READ : PROT_NONE;
    return true;
}

/* Lock held; the range is covered by whole mappings. */
static CUresult set_access(uint64_t pointer, uint64_t size, struct rights rights) {
    struct sim_range range;
    for (uint64_t at = pointer; at < pointer + size; at = range.base + range.size) {
        sim_ranges_find(&sim_memory, at, &range);
        sim_ranges_change(&sim_memory, at, set_rights, &rights);
        if (mprotect((void *)range.base, range.size, rights.protection) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Whether anything may use a part of it: what runs then keeps the rights that it began with. */
static bool in_use(uint64_t pointer, uint64_t size) {
    struct sim_range range;
    for (uint64_t at = pointer; at < pointer + size && sim_ranges_find(&sim_memory, at, &range);
         at = range.base + range.size)
        if (range.readable)
            return true;
    return false;
}

/* Whether who is there could use it. Lock held. */
static bool reaches(uint64_t pointer, uint64_t size, const CUmemLocation *from) {
    struct sim_range range;
    for (uint64_t at = pointer; at < pointer + size; at = range.base + range.size)
        if (sim_ranges_find(&sim_memory, at, &range) && !range.of_host &&
            (is_host(from) || (range.device->ordinal != from->id && !sim_config_get()->peers)))
            return false;
    return true;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *descriptions, size_t count) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(descriptions && count);
    for (size_t i = 0; i < count; i++) {
        const CUmemAccessDesc *one = &descriptions[i];
        SIM_REQUIRE(one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                    one->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                    one->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SIM_REQUIRE(is_host(&one->location) ||
                    (one->location.type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_at(one->location.id)));
    }
    SIM_REQUIRE(covered(pointer, size, true));
    if (in_use(pointer, size))
        drain_devices_of(pointer, size);
    pthread_mutex_lock(&lock);
    CUresult result = covered(pointer, size, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            !reaches(pointer, size, &descriptions[i].location))
            result = CUDA_ERROR_INVALID_DEVICE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUmemAccessDesc *one = &descriptions[i];
        result = set_access(
            pointer, size,
            (struct rights){.device = is_host(&one->location) ? 0 : UINT64_C(1) << one->location.id,
                            .read = one->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
                            .write = one->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUmemAccess_flags sim_mapping_access(const struct sim_range *mapping, int ordinal) {
    return mapping->writable >> ordinal & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : mapping->readable >> ordinal & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                              : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(flags && location);
    if (!is_host(location) && (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_at(location->id)))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_range range;
    SIM_REQUIRE(sim_ranges_find(&sim_memory, pointer, &range));
    SIM_REQUIRE(range.kind == SIM_RANGE_MAPPED || range.kind == SIM_RANGE_DEVICE);
    if (range.kind == SIM_RANGE_MAPPED)
        *flags = is_host(location) ? range.host : sim_mapping_access(&range, location->id);
    else /* its own device may read and write it (H200, 580.159.04) */
        *flags = !is_host(location) && range.device->ordinal == location->id
                     ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

bool sim_vmm_discard(uint64_t base, uint64_t size) {
    return madvise((void *)base, size, MADV_REMOVE) == 0;
}
