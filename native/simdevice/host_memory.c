/* Page-locked host memory: every page of this process is as good as page-locked, so it is a matter of knowing
 * which. */
#include "capture.h"
#include "driver_interop/registration.h"
#include "memory.h"
#include <stdlib.h>

static CUresult add(enum sim_range_kind kind, struct sim_context *context, uint64_t base, size_t size,
                    unsigned flags) {
    struct sim_range *range = sim_memory_range(kind, context->device, context, size, flags);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = base;
    if (!sim_ranges_insert(&sim_memory, range)) {
        free(range);
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    SIM_REQUIRE(pointer && (flags & ~known) == 0);
    SIM_TRY(sim_capture_check_unsafe());
    if (size > UINT64_C(1) << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size = size ? size : 1; /* it may be freed like any other */
    uint64_t bytes = sim_round_up(size, SIM_PAGE), base = sim_pages_new(bytes);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = add(SIM_RANGE_HOST, context, base, size, flags);
    if (result != CUDA_SUCCESS) {
        sim_pages_free(base, bytes);
        return result;
    }
    *pointer = (void *)base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t size) {
    return cuMemHostAlloc(pointer, size, 0);
}

static bool is_allocated(struct sim_range *range) {
    return range->kind == SIM_RANGE_HOST;
}

static bool is_registered(struct sim_range *range) {
    return range->kind == SIM_RANGE_REGISTERED;
}

static CUresult drain_and_remove(void *pointer, bool (*accept)(struct sim_range *), CUresult otherwise) {
    struct sim_context *context;
    struct sim_range range;
    SIM_TRY(sim_context_current(&context));
    if (!sim_ranges_find(&sim_memory, (uint64_t)pointer, &range) || range.base != (uint64_t)pointer ||
        !accept(&range))
        return otherwise;
    SIM_TRY(sim_capture_check_unsafe());
    sim_device_drain(range.device);
    struct sim_range *removed = sim_ranges_remove(&sim_memory, (uint64_t)pointer, accept);
    if (!removed)
        return otherwise;
    sim_memory_dispose(removed);
    return sim_context_error(context);
}

CUresult cuMemFreeHost(void *pointer) {
    SIM_TRY(sim_enter());
    if (!pointer)
        return CUDA_SUCCESS;
    return drain_and_remove(pointer, is_allocated, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_TRY(gf_registration_check(pointer, size, flags));
    SIM_TRY(gf_registration_allowed(pointer, size, flags));
    return add(SIM_RANGE_REGISTERED, context, (uint64_t)pointer, size, flags);
}

CUresult cuMemHostUnregister(void *pointer) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(pointer);
    struct sim_range range; /* memory that was allocated, or the middle of what was registered */
    bool known = sim_ranges_find(&sim_memory, (uint64_t)pointer, &range) &&
                 (is_allocated(&range) || is_registered(&range));
    return drain_and_remove(pointer, is_registered,
                            known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static CUresult find(void *pointer, struct sim_range *range) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(sim_ranges_find(&sim_memory, (uint64_t)pointer, range));
    SIM_REQUIRE(is_allocated(range) || is_registered(range));
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer, unsigned int flags) {
    struct sim_range range;
    SIM_REQUIRE(device_pointer && flags == 0);
    SIM_TRY(find(pointer, &range));
    *device_pointer = (uint64_t)pointer;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer) {
    struct sim_range range;
    SIM_REQUIRE(flags);
    SIM_TRY(find(pointer, &range));
    *flags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP; /* unified addressing maps all of it */
    return CUDA_SUCCESS;
}
