#include "calls.h"
#include "context.h"
#include "freeing.h"
#include "functions.h"
#include "ipc.h"
#include "graph.h"
#include "host_memory.h"
#include "mirror.h"
#include "module.h"
#include "pending.h"
#include "shared.h"
#include "vmm.h"
#include "window.h"

#define PITCH_ALIGN 512ull

CUresult gf_cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (free == NULL || total == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gf_window_info(gf_device_number(), free, total);
}

CUresult gf_memory_alloc(CUdeviceptr *address, size_t size) {
    uint64_t found;
    CUresult result = gf_window_alloc(gf_device_number(), size, gf_context_current_handle(), 0, 0, &found);
    if (result == CUDA_SUCCESS) {
        *address = found;
    }
    return result;
}

CUresult gf_memory_free(CUdeviceptr address) {
    struct gf_shared shared;
    struct gf_allocation allocation;
    struct gf_mirror mirror;
    CUresult result, waited;
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    if (!gf_window_find(address, &allocation) || allocation.address != address ||
        gf_mirror_find(address, false, &mirror)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_pending_wait(NULL, UINT64_MAX); /* some programs look at what they had copied out */
    if (gf_shared_find(address, &shared)) {
        if (!shared.managed) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        waited = gf_free_shared_begins();
        if (!gf_shared_end(address, true)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    } else {
        waited = gf_free_begins(gf_window_device(address));
    }
    if (!gf_graph_memory_free(address, &result)) {
        result = gf_ipc_close(address, GF_IPC_POOLED) ? CUDA_SUCCESS : gf_window_free(address, 0);
    }
    gf_window_settle(true);
    return result != CUDA_SUCCESS ? result : waited;
}

CUresult gf_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                               unsigned ElementSizeBytes) {
    if (dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t pitch, bytes;
    if (__builtin_add_overflow(WidthInBytes, PITCH_ALIGN - 1, &pitch)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pitch = pitch / PITCH_ALIGN * PITCH_ALIGN;
    if (pitch > (size_t)gf_device_here()->attributes[CU_DEVICE_ATTRIBUTE_MAX_PITCH]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (__builtin_mul_overflow(pitch, Height, &bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = gf_cuMemAlloc_v2(dptr, bytes);
    if (result == CUDA_SUCCESS) {
        *pPitch = pitch;
    }
    return result;
}

CUresult gf_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    struct gf_allocation allocation;
    struct gf_mapping mapping;
    struct gf_host_range range;
    struct gf_module_memory variable;
    uint64_t base, size;
    if (gf_host_find(dptr, &range)) {
        base = range.address;
        size = range.size;
    } else if (gf_window_find(dptr, &allocation)) {
        base = allocation.address;
        size = allocation.size;
    } else if (gf_mapping_find(dptr, &mapping)) {
        base = mapping.address;
        size = mapping.size;
    } else if (gf_global_find(dptr, &variable)) {
        base = variable.base;
        size = variable.size;
    } else {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (pbase != NULL) {
        *pbase = base;
    }
    if (psize != NULL) {
        *psize = size;
    }
    return CUDA_SUCCESS;
}
