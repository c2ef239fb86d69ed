/* What a pointer points to. */
#include "memory.h"
#include "pool.h"
#include "vmm.h"
#include <string.h>

static bool on_host(const struct sim_range *range) {
    return range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED || range->of_host;
}

/* What the current context's device may do there; the memory's own, where no context is current. */
static unsigned access_flags(const struct sim_range *range) {
    struct sim_context *context;
    if (!range)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    if (range->kind != SIM_RANGE_MAPPED)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    const bool current = sim_context_current(&context) == CUDA_SUCCESS;
    const int ordinal = current ? context->device->ordinal : range->device->ordinal;
    return (unsigned)sim_mapping_access(range, ordinal); /* the same numbers */
}

/* Writes what an attribute is for a pointer that no range contains (`range` NULL) or one does. NOT_FOUND: has
 * none. */
static CUresult query(void *value, CUpointer_attribute attribute, uint64_t pointer,
                      const struct sim_range *range) {
    const bool managed = range && range->kind == SIM_RANGE_MANAGED;
    const bool pooled = range && range->kind == SIM_RANGE_POOL;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* stream-ordered memory and mappings are no context's: that is how programs tell them */
        *(CUcontext *)value = range && range->context ? SIM_POINTER(CUcontext, range->context) : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)value = !range ? 0 : on_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = range ? pointer : 0;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: {
        bool reachable = !range || on_host(range) || managed; /* of what CUDA does not know, so it answers */
        *(void **)value = reachable ? (void *)pointer : NULL;
        return range && reachable ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    }
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        memset(value, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        return CUDA_ERROR_NOT_SUPPORTED; /* there is no driver that they could be given to */
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)value = range && range->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value = range ? range->id : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = managed;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = range ? range->device->ordinal : CU_DEVICE_INVALID;
        break;
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
        *(int *)value = -1; /* nothing here is of a part of a device */
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = range ? range->base : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = range ? range->size : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)value = range != NULL;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)value = access_flags(range);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = pooled ? (CUmemoryPool)(uintptr_t)sim_pool_handle(range->owner) : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = pooled ? ((struct sim_pool *)range->owner)->properties.handleTypes
                                       : range && range->kind == SIM_RANGE_MAPPED ? range->flags
                                                                                  : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(bool *)value = range && range->kind == SIM_RANGE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(bool *)value = false;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    struct sim_range range;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(value && sim_ranges_find(&sim_memory, pointer, &range));
    CUresult result = query(value, attribute, pointer, &range);
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_INVALID_VALUE : result;
}

/* Says "nothing" where the singular call would be an error. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr pointer) {
    struct sim_range range;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(count && attributes && values);
    bool found = sim_ranges_find(&sim_memory, pointer, &range);
    for (unsigned i = 0; i < count; i++) {
        SIM_REQUIRE(values[i]);
        CUresult result = query(values[i], attributes[i], pointer, found ? &range : NULL);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_FOUND)
            return result;
    }
    return CUDA_SUCCESS;
}

static bool set_sync_memops(struct sim_range *range, void *value) {
    if (on_host(range))
        return false;
    range->sync_memops = *(bool *)value;
    return true;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    bool on = *(const unsigned *)value != 0;
    struct sim_range range;
    if (sim_ranges_find(&sim_memory, pointer, &range) && range.kind == SIM_RANGE_MAPPED)
        return CUDA_ERROR_NOT_SUPPORTED; /* as NVIDIA's driver says: who wants it sets CU_CTX_SYNC_MEMOPS */
    SIM_REQUIRE(sim_ranges_change(&sim_memory, pointer, set_sync_memops, &on));
    return CUDA_SUCCESS;
}
