/* The program's own virtual memory. Physical memory has a home in the window, where it is backed like any
 * other memory and so moves, counts and ends like it; what the program maps is that memory a second time. */
#include "vmm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "channel.h"
#include "descriptor.h"
#include "freeing.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "guest.h"
#include "hooks.h"
#include "mirror.h"
#include "objects.h"
#include "shared.h"
#include "unmaps.h"
#include "window.h"

/* Guards the mappings and what counts them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_mapping *mappings; /* sorted by address */
static size_t mapping_count, mapping_capacity;
static _Atomic size_t mapped_ranges;

/* Index of the first mapping that ends behind an address. */
static size_t position(uint64_t address) {
    size_t low = 0, high = mapping_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (mappings[middle].address + mappings[middle].size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool gf_location_is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0);
}

bool gf_mapping_find(uint64_t address, struct gf_mapping *mapping) {
    if (atomic_load_explicit(&mapped_ranges, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    size_t at = position(address);
    bool found = at < mapping_count && mappings[at].address <= address;
    if (found) {
        *mapping = mappings[at];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int gf_mapping_device(uint64_t address) {
    struct gf_mapping mapping;
    return gf_window_device(gf_mapping_find(address, &mapping)
                                ? gf_memory_allocation_find(mapping.allocation)->address
                                : address);
}

/* What whoever may do most with it may do. */
static CUmemAccess_flags most_access(const struct gf_mapping *mapping) {
    uint8_t most = mapping->host_access;
    for (int i = 0; i < gf_session.device_count; i++) {
        most = mapping->access[i] > most ? mapping->access[i] : most;
    }
    return most;
}

bool gf_mapping_allows(uint64_t address, uint64_t size, bool write) {
    CUmemAccess_flags least = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    uint64_t end;
    if (__builtin_add_overflow(address, size, &end)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    size_t at = position(address);
    while (at < mapping_count && mappings[at].address <= address && address < end &&
           most_access(&mappings[at]) >= least) {
        address = mappings[at].address + mappings[at].size;
        at++;
    }
    pthread_mutex_unlock(&lock);
    return address >= end;
}

/* The mappings that a range is made of, whole ones only, all of the program or all of page-locked memory: the
 * first and how many; 0: it is none. Lock held. */
static size_t whole(uint64_t address, uint64_t size, bool locked, size_t *first) {
    size_t at = position(address), count = 0;
    *first = at;
    uint64_t end = address + size;
    while (size > 0 && at < mapping_count && mappings[at].address == address && address < end &&
           mappings[at].locked == locked) {
        address += mappings[at++].size;
        count++;
    }
    return address == end ? count : 0;
}

static bool granular(uint64_t value) {
    return value % gf_session.granularity == 0;
}

/* A handle that the program still holds. */
CUresult gf_memory_allocation_look_up(CUmemGenericAllocationHandle handle,
                                      struct gf_memory_allocation **allocation, uint64_t *wire) {
    *wire = handle;
    *allocation = gf_memory_allocation_find(handle);
    return *allocation == NULL || (*allocation)->references == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Our ends of the descriptors that were given out. */
struct kept {
    struct kept *next;
    uint64_t allocation;
    int end;
};

static struct kept *descriptors;

/* Ends physical memory that no handle, mapping or descriptor needs any more. Lock held. */
static void end_if_unused(struct gf_memory_allocation *allocation) {
    if (allocation->references == 0 && allocation->mappings == 0 && allocation->descriptors == 0) {
        if (allocation->imported) {
            gf_window_import_end(allocation->address, true);
        } else {
            gf_window_free(allocation->address, 0);
        }
        gf_objects_release(gf_object_end(allocation, atomic_load(&allocation->object.handle)));
    }
}

/* Forgets descriptors that are closed everywhere. Lock held. */
static void drop_closed(void) {
    for (struct kept **link = &descriptors; *link != NULL;) {
        struct kept *one = *link;
        if (gf_descriptor_is_open(one->end)) {
            link = &one->next;
            continue;
        }
        struct gf_memory_allocation *allocation = gf_memory_allocation_find(one->allocation);
        *link = one->next;
        close(one->end);
        free(one);
        allocation->descriptors--;
        end_if_unused(allocation);
    }
}

/* Memory of this size and kind has a handle. */
static void publish(struct gf_memory_allocation *allocation, uint64_t found, size_t size,
                    CUmemGenericAllocationHandle *handle) {
    allocation->size = size;
    allocation->references = 1;
    gf_object_publish(allocation, found, NULL);
    *handle = found;
}

CUresult gf_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                        unsigned long long flags) {
    if (handle == NULL || prop == NULL || flags != 0 || size == 0 || !granular(size) ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool on_host = gf_location_is_host(&prop->location);
    if (!on_host &&
        (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !gf_is_device(prop->location.id))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        (on_host || prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    int device = on_host ? gf_device_number() : prop->location.id;
    pthread_mutex_lock(&lock);
    drop_closed();
    pthread_mutex_unlock(&lock);
    uint64_t found;
    struct gf_memory_allocation *allocation = gf_memory_allocation_new(&found);
    CUresult result =
        allocation == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_window_home(device, size, &allocation->address);
    if (result != CUDA_SUCCESS) {
        if (allocation != NULL) {
            gf_object_discard(allocation);
        }
        return result;
    }
    allocation->properties = *prop;
    publish(allocation, found, size, handle);
    return CUDA_SUCCESS;
}

/* A descriptor that is closed is noticed at a later call. Lock held. */
static CUresult export(struct gf_memory_allocation *allocation, uint64_t wire, int *descriptor) {
    struct gf_ipc_handle handle = gf_ipc_handle(GF_IPC_PHYSICAL);
    struct kept *kept = calloc(1, sizeof *kept);
    CUresult result =
        kept == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_window_export(allocation->address, 0, handle.token);
    handle.detail = wire;
    handle.device = gf_ipc_device_name(gf_window_device(allocation->address));
    if (result == CUDA_SUCCESS && !gf_descriptor_make(&handle, descriptor, &kept->end)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        free(kept);
        return result;
    }
    kept->allocation = wire;
    kept->next = descriptors;
    descriptors = kept;
    allocation->descriptors++;
    return CUDA_SUCCESS;
}

CUresult gf_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType handleType, unsigned long long flags) {
    struct gf_memory_allocation *allocation;
    uint64_t wire;
    if (shareableHandle == NULL || flags != 0 || handleType == CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (CUdevice device = 0; device < gf_session.device_count; device++) {
        gf_ipc_copied_in(device); /* a context that failed says so where it is used */
    }
    pthread_mutex_lock(&lock);
    drop_closed();
    CUresult result = gf_memory_allocation_look_up(handle, &allocation, &wire);
    if (result == CUDA_SUCCESS && allocation->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    result = result == CUDA_SUCCESS ? export(allocation, wire, shareableHandle) : result;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Of this process's own memory: the descriptor is open, so it is there. */
static CUresult import_own(const struct gf_ipc_handle *told, CUmemGenericAllocationHandle *handle) {
    pthread_mutex_lock(&lock);
    struct gf_memory_allocation *allocation = gf_memory_allocation_find(told->detail);
    if (allocation != NULL) {
        allocation->references++;
        *handle = told->detail;
    }
    pthread_mutex_unlock(&lock);
    return allocation == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Of another process: backed at home by its memory. */
static CUresult import(const struct gf_ipc_handle *told, CUmemGenericAllocationHandle *handle) {
    struct gf_rep_sessionImportFind found = {0};
    uint64_t wire;
    CUresult result = gf_ipc_find(told, &found);
    if (result != CUDA_SUCCESS || found.offset != 0 || found.bytes != found.size) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
    }
    struct gf_memory_allocation *allocation = gf_memory_allocation_new(&wire);
    if (allocation == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = gf_window_import(gf_ipc_device(told), found.size, 0, found.size, 0, &allocation->address);
    if (result == CUDA_SUCCESS && (result = gf_ipc_map(told, allocation->address)) != CUDA_SUCCESS) {
        gf_window_import_end(allocation->address, false);
    }
    if (result != CUDA_SUCCESS) {
        gf_object_discard(allocation);
        return result;
    }
    allocation->properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gf_window_device(allocation->address)}};
    allocation->imported = true;
    publish(allocation, wire, found.size, handle);
    return CUDA_SUCCESS;
}

CUresult gf_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                           CUmemAllocationHandleType shHandleType) {
    struct gf_ipc_handle told;
    if (handle == NULL || shHandleType == CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    bool is_one = gf_descriptor_read((int)(intptr_t)osHandle, &told);
    if (!is_one && osHandle == NULL) { /* NULL is descriptor 0 as well */
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = is_one ? gf_ipc_check(&told, GF_IPC_PHYSICAL) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_ERROR_INVALID_CONTEXT ? import_own(&told, handle)
           : result == CUDA_SUCCESS             ? import(&told, handle)
                                                : CUDA_ERROR_UNKNOWN; /* as NVIDIA's driver calls it */
}

CUresult gf_cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct gf_memory_allocation *allocation;
    uint64_t wire;
    pthread_mutex_lock(&lock);
    drop_closed();
    CUresult result = gf_memory_allocation_look_up(handle, &allocation, &wire);
    if (result == CUDA_SUCCESS) {
        allocation->references--;
        end_if_unused(allocation);
    }
    pthread_mutex_unlock(&lock);
    gf_window_settle(false);
    return result;
}

CUresult gf_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    /* Page-locked memory that kernels reach is mapped, too, but not by the program. */
    if (handle == NULL || gf_is_page_locked((uint64_t)addr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    size_t at = position((uint64_t)addr);
    bool found = at < mapping_count && mappings[at].address <= (uint64_t)addr;
    if (found) {
        gf_memory_allocation_find(mappings[at].allocation)->references++;
        *handle = mappings[at].allocation;
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* An address is only a wish. */
CUresult gf_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                unsigned long long flags) {
    uint64_t address;
    if (ptr == NULL || flags != 0 || size == 0 || size % 4096 != 0 || (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_window_reserve(size, alignment, &address);
    if (result == CUDA_SUCCESS) {
        *ptr = address;
    }
    return result;
}

CUresult gf_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    if (gf_is_page_locked(ptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    size_t at = position(ptr);
    bool mapped = at < mapping_count && mappings[at].address < ptr + size;
    CUresult result = mapped ? CUDA_ERROR_INVALID_VALUE : gf_window_unreserve(ptr, size);
    pthread_mutex_unlock(&lock);
    return result;
}

static bool make_room(void) {
    if (mapping_count < mapping_capacity) {
        return true;
    }
    size_t capacity = mapping_capacity == 0 ? 16 : 2 * mapping_capacity;
    struct gf_mapping *grown = realloc(mappings, capacity * sizeof *mappings);
    if (grown != NULL) {
        mappings = grown;
        mapping_capacity = capacity;
    }
    return grown != NULL;
}

CUresult gf_mapping_make(uint64_t ptr, uint64_t size, uint64_t offset, CUmemGenericAllocationHandle handle,
                         bool locked) {
    struct gf_memory_allocation *allocation;
    uint64_t wire;
    pthread_mutex_lock(&lock);
    CUresult result = gf_memory_allocation_look_up(handle, &allocation, &wire);
    if (result == CUDA_SUCCESS && (!granular(size) || offset != 0)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    size_t at = position(ptr);
    bool taken = at < mapping_count && mappings[at].address < ptr + size;
    if (result == CUDA_SUCCESS &&
        (!granular(ptr) || taken || size > allocation->size || !gf_window_is_reserved(ptr, size))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && !make_room()) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        struct gf_req_sessionMemAlias request = {.address = ptr, .size = size, .home = allocation->address};
        result = gf_send_struct(GF_OP_sessionMemAlias, &request);
    }
    if (result == CUDA_SUCCESS) {
        memmove(&mappings[at + 1], &mappings[at], (mapping_count - at) * sizeof *mappings);
        mappings[at] = (struct gf_mapping){.address = ptr,
                                           .size = size,
                                           .allocation = handle,
                                           .locked = locked,
                                           .on_host = gf_location_is_host(&allocation->properties.location)};
        atomic_store(&mapped_ranges, ++mapping_count);
        allocation->mappings++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult gf_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                     unsigned long long flags) {
    return ptr == 0 || size == 0 || flags != 0 || gf_is_page_locked(ptr)
               ? CUDA_ERROR_INVALID_VALUE
               : gf_mapping_make(ptr, size, offset, handle, false);
}

CUresult gf_mapping_end(uint64_t ptr, uint64_t size, bool locked) {
    size_t first;
    gf_hook(GF_BEFORE_UNMAP);
    pthread_mutex_lock(&lock);
    size_t count = whole(ptr, size, locked, &first);
    CUresult result = count == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        struct gf_req_sessionMemUnalias request = {.address = ptr, .size = size};
        result = gf_send_struct(GF_OP_sessionMemUnalias, &request);
        gf_unmaps_note();
    }
    for (size_t i = first; result == CUDA_SUCCESS && i < first + count; i++) {
        struct gf_memory_allocation *allocation = gf_memory_allocation_find(mappings[i].allocation);
        allocation->mappings--;
        end_if_unused(allocation);
    }
    if (result == CUDA_SUCCESS) {
        mapping_count -= count;
        memmove(&mappings[first], &mappings[first + count], (mapping_count - first) * sizeof *mappings);
        atomic_store(&mapped_ranges, mapping_count);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* What the program wrote to memory of the host is there where it is mapped next. */
static void unshare(uint64_t ptr, uint64_t size) {
    struct gf_mapping mapping;
    uint64_t end = ptr + size;
    bool flushed = false;
    for (; ptr < end && gf_mapping_find(ptr, &mapping); ptr = mapping.address + mapping.size) {
        if (mapping.on_host && !flushed) {
            gf_shared_flush();
            flushed = true;
        }
        if (mapping.on_host) {
            gf_shared_end(mapping.address, false);
        }
    }
}

static bool is_whole(uint64_t ptr, uint64_t size) {
    size_t first;
    pthread_mutex_lock(&lock);
    bool is = whole(ptr, size, false, &first) > 0;
    pthread_mutex_unlock(&lock);
    return is;
}

CUresult gf_cuMemUnmap(CUdeviceptr ptr, size_t size) {
    if (is_whole(ptr, size)) {
        unshare(ptr, size);
    }
    CUresult result = gf_mapping_end(ptr, size, false);
    gf_window_settle(true);
    return result;
}

static bool valid_access(const CUmemAccessDesc *desc) {
    bool on_device = desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE && gf_is_device(desc->location.id);
    return (on_device || gf_location_is_host(&desc->location)) &&
           (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
            desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* The device whose memory is mapped there. */
static int device_of(const struct gf_mapping *mapping) {
    return gf_window_device(gf_memory_allocation_find(mapping->allocation)->address);
}

/* Whether who is there could use mappings. Lock held. */
static bool reaches(const CUmemLocation *from, size_t first, size_t count) {
    int device = from->id;
    for (size_t i = first; i < first + count; i++) {
        if (gf_location_is_host(from)) {
            if (!mappings[i].on_host) {
                return false;
            }
            continue;
        }
        int owner = device_of(&mappings[i]);
        if (owner != device && !gf_session.links[device][owner].can_access) {
            return false;
        }
    }
    return true;
}

/* Where there is one device, as servers of every release know it. */
static CUresult send_access(CUdeviceptr ptr, size_t size, CUmemAccess_flags access, int device) {
    struct gf_req_sessionMemAccess request = {.address = ptr, .size = size, .access = access};
    struct gf_req_sessionMemAccessOn on = {.address = ptr, .size = size, .access = access, .device = device};
    return gf_session.device_count == 1 ? gf_send_struct(GF_OP_sessionMemAccess, &request)
                                        : gf_send_struct(GF_OP_sessionMemAccessOn, &on);
}

/* Lock held. */
static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t first,
                           size_t changed) {
    int device = desc->location.id;
    bool from_host = gf_location_is_host(&desc->location), some_on_host = false;
    for (size_t i = first; i < first + changed; i++) {
        some_on_host |= mappings[i].on_host;
    }
    CUresult result = some_on_host ? CUDA_SUCCESS : send_access(ptr, size, desc->flags, device);
    for (size_t i = first; result == CUDA_SUCCESS && i < first + changed; i++) {
        struct gf_mapping *mapping = &mappings[i];
        bool kept = from_host || (mapping->on_host && device_of(mapping) == device); /* see share */
        if (some_on_host && !kept) {
            result = send_access(mapping->address, mapping->size, desc->flags, device);
        }
        *(from_host ? &mapping->host_access : &mapping->access[device]) = (uint8_t)desc->flags;
    }
    return result;
}

/* Memory of the host lies on a device, as managed memory does. That device may always use it, whatever the
 * program lets it do: what the program wrote is sent there, what kernels wrote is fetched from there. */
static CUresult share(uint64_t ptr, uint64_t size) {
    struct gf_mapping mapping;
    CUresult result = CUDA_SUCCESS;
    uint64_t end = ptr + size;
    for (; result == CUDA_SUCCESS && ptr < end && gf_mapping_find(ptr, &mapping);
         ptr = mapping.address + mapping.size) {
        if (mapping.on_host) {
            int home = device_of(&mapping);
            result = send_access(mapping.address, mapping.size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, home);
            result = result == CUDA_SUCCESS ? gf_shared_open(mapping.address, mapping.size, home) : result;
        }
    }
    return result;
}

CUresult gf_mapping_set_access(uint64_t ptr, uint64_t size, const CUmemAccessDesc *desc, size_t count,
                               bool locked) {
    size_t first;
    pthread_mutex_lock(&lock);
    size_t changed = whole(ptr, size, locked, &first);
    CUresult result = changed == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        bool none = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        result =
            none || reaches(&desc[i].location, first, changed) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        result = set_access(ptr, size, &desc[i], first, changed);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether any device may use a part of it by now: what runs keeps the rights with which it began. */
static bool in_use(uint64_t ptr, uint64_t size) {
    struct gf_mapping mapping;
    bool used = false;
    for (uint64_t end = ptr + size; !used && ptr < end && gf_mapping_find(ptr, &mapping);
         ptr = mapping.address + mapping.size) {
        for (CUdevice device = 0; device < gf_session.device_count; device++) {
            used = used || mapping.access[device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        }
    }
    return used;
}

CUresult gf_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    if (desc == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!valid_access(&desc[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (in_use(ptr, size)) {
        gf_access_begins();
    }
    CUresult result = gf_mapping_set_access(ptr, size, desc, count, false);
    return result == CUDA_SUCCESS ? share(ptr, size) : result;
}

/* What cuMemAlloc gave, which its device may read and write (H200, 580.159.04). */
static bool is_plain(uint64_t address, struct gf_mapping *as) {
    struct gf_allocation allocation;
    struct gf_shared shared;
    if (!gf_window_find(address, &allocation) || allocation.pool != 0 || gf_shared_find(address, &shared)) {
        return false;
    }
    *as = (struct gf_mapping){.address = address};
    as->access[gf_window_device(address)] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return true;
}

CUresult gf_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
    struct gf_mapping mapping;
    if (flags == NULL || location == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool from_host = gf_location_is_host(location);
    if (!from_host && (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !gf_is_device(location->id))) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (gf_is_page_locked(ptr) || (!gf_mapping_find(ptr, &mapping) && !is_plain(ptr, &mapping))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = from_host ? mapping.host_access : mapping.access[location->id];
    return CUDA_SUCCESS;
}
