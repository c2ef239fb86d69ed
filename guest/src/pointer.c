#include <string.h>

#include "context.h"
#include "functions.h"
#include "host_memory.h"
#include "ipc.h"
#include "mirror.h"
#include "module.h"
#include "objects.h"
#include "shared.h"
#include "vmm.h"
#include "window.h"
#include "wire/handle.h"

/* What is known of an address. */
struct subject {
    bool device, host;
    bool shared; /* managed: reached by both at this address */
    uint64_t base, size, id, owner;
    int place;                   /* the device's number */
    uint64_t on_host, on_device; /* where it is for each of them; 0: nowhere */
    uint64_t pool;
    bool sync_memops;
    bool exportable; /* by cuIpcGetMemHandle */
    bool imported;   /* it lies on its exporter's device, whichever context opened it */
    CUmemAllocationHandleType handle_types;
    int access; /* of the current device; of what is not mapped by the program, as far as it has an address */
};

/* By which other processes may have what lies in a pool. */
static CUmemAllocationHandleType pool_handle_types(uint64_t handle) {
    const struct gf_memory_pool *pool = gf_memory_pool_find((CUmemoryPool)handle);
    return pool == NULL ? CU_MEM_HANDLE_TYPE_NONE : pool->handle_types;
}

static struct subject look_up(uint64_t address) {
    struct gf_allocation allocation;
    struct gf_mapping mapping;
    struct gf_host_range range;
    struct gf_module_memory variable;
    struct subject s = {0};
    struct gf_shared shared;
    struct gf_mirror mirror;
    bool is_shared = gf_shared_find(address, &shared), is_mapped = false;
    if (gf_mirror_find(address, false, &mirror)) {
        address = mirror.host + (address - mirror.device);
    }
    if (gf_host_find(address, &range)) {
        s = (struct subject){.host = true,
                             .base = range.address,
                             .size = range.size,
                             .id = range.id,
                             .owner = range.owner,
                             .on_host = address,
                             .on_device = range.in_window || is_shared ? address : 0};
        if (gf_mirror_find(address, true, &mirror)) {
            s.on_device = mirror.device + (address - mirror.host);
        }
    } else if (gf_window_find(address, &allocation)) {
        /* A pool's memory is of no context: programs tell it from cuMemAlloc's by that. */
        s = (struct subject){.device = true,
                             .base = allocation.address,
                             .size = allocation.size,
                             .id = allocation.id,
                             .owner = allocation.owner,
                             .pool = allocation.pool,
                             .handle_types = pool_handle_types(allocation.pool),
                             .sync_memops = allocation.synchronous,
                             .exportable = gf_ipc_exportable(&allocation),
                             .imported = allocation.imported,
                             .shared = is_shared};
    } else if ((is_mapped = gf_mapping_find(address, &mapping))) {
        s = (struct subject){
            .device = !mapping.on_host,
            .host = mapping.on_host,
            .on_host = mapping.on_host ? address : 0,
            .on_device = address,
            .base = mapping.address,
            .size = mapping.size,
            .id = mapping.allocation,
            .access = mapping.access[gf_device_number()],
            .handle_types = gf_memory_allocation_find(mapping.allocation)->properties.requestedHandleTypes};
    } else if (gf_global_find(address, &variable)) {
        s = (struct subject){.device = true,
                             .base = variable.base,
                             .size = variable.size,
                             .id = variable.id,
                             .owner = variable.context,
                             .sync_memops = variable.synchronous,
                             .shared = is_shared};
    }
    s.place = gf_context_device(s.owner);
    if (s.device && (s.owner == 0 || s.imported)) {
        s.place = gf_mapping_device(address);
    }
    if (s.device) {
        s.on_device = address;
        s.on_host = s.shared ? address : 0;
    }
    if (!is_mapped && s.on_device != 0) {
        s.access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    }
    return s;
}

static void put(void *data, uint64_t value, size_t size) {
    memcpy(data, &value, size);
}

/* Registered memory is made the device's when the program asks where it has it: also in this way, if it was
 * registered for that. Who asks about all memory does not pay for copies that no kernel wants. */
static uint64_t on_device(const struct subject *s, uint64_t address) {
    struct gf_host_range range;
    CUdeviceptr made;
    bool wanted = s->on_device == 0 && gf_host_find(address, &range) &&
                  (range.flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0 && gf_context_current_handle() != 0;
    return wanted && gf_cuMemHostGetDevicePointer_v2(&made, (void *)address, 0) == CUDA_SUCCESS
               ? made
               : s->on_device;
}

static CUresult get(const struct subject *s, uint64_t address, CUpointer_attribute attribute, void *data) {
    const CUresult only_known = s->device || s->host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    uint64_t there;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        put(data, s->owner, sizeof(CUcontext));
        return only_known;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        put(data, s->device ? CU_MEMORYTYPE_DEVICE : s->host ? CU_MEMORYTYPE_HOST : 0, sizeof(unsigned));
        return only_known;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: /* kernels cannot reach other memory of the program */
        there = on_device(s, address);
        put(data, there, sizeof(CUdeviceptr));
        return there != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: /* what CUDA does not know it takes for the program's */
        put(data, s->device || s->host ? s->on_host : address, sizeof(void *));
        return s->on_host != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        put(data, s->sync_memops, sizeof(unsigned));
        return only_known;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        put(data, s->device && s->shared, sizeof(unsigned));
        return only_known;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        put(data, s->exportable, sizeof(char));
        return only_known;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        put(data, 0, sizeof(char));
        return only_known;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        put(data, s->id, sizeof(uint64_t));
        return only_known;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put(data, s->device || s->host ? (uint64_t)s->place : (uint64_t)-2, sizeof(int));
        return only_known;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        put(data, s->base, sizeof(void *));
        return only_known;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        put(data, s->size, sizeof(size_t));
        return only_known;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put(data, s->device || s->host, sizeof(unsigned));
        return only_known;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        put(data, s->handle_types, sizeof(uint64_t));
        return only_known;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put(data, (uint64_t)s->access, sizeof(int));
        return only_known;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        put(data, s->pool, sizeof(CUmemoryPool));
        return only_known;
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
        put(data, (uint64_t)-1, sizeof(int));
        return only_known;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult gf_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    unsigned char value[16];
    if (data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct subject subject = look_up(ptr);
    /* Into a buffer first: on failure the program's memory stays as it was. */
    CUresult result = get(&subject, ptr, attribute, value);
    return result != CUDA_SUCCESS ? result : get(&subject, ptr, attribute, data);
}

/* Unlike the singular form it succeeds for any address; what does not apply is zero. */
CUresult gf_cuPointerGetAttributes(unsigned numAttributes, CUpointer_attribute *attributes, void **data,
                                   CUdeviceptr ptr) {
    if (numAttributes == 0 || attributes == NULL || data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct subject subject = look_up(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        unsigned char value[16];
        bool known = (unsigned)attributes[i] >= CU_POINTER_ATTRIBUTE_CONTEXT &&
                     (unsigned)attributes[i] <= CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL;
        if (!known || data[i] == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (get(&subject, ptr, attributes[i], value) == CUDA_ERROR_NOT_SUPPORTED) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        get(&subject, ptr, attributes[i], data[i]);
    }
    return CUDA_SUCCESS;
}

static bool make_synchronous(CUdeviceptr address, bool on) {
    return gf_window_synchronous(address, on) || gf_global_synchronous(address, on);
}

/* NVIDIA's driver does not have it for what the program maps itself: clients then set CU_CTX_SYNC_MEMOPS. */
CUresult gf_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct gf_mapping mapping;
    bool known = value != NULL && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && !gf_is_page_locked(ptr);
    if (known && gf_mapping_find(ptr, &mapping)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return known && make_synchronous(ptr, *(const unsigned *)value != 0) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}
