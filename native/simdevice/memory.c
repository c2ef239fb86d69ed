#include "capture.h"
#include "memory.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOILED_MOST (UINT64_C(1) << 20) /* beyond, it would cost the pages that a program never touches */

uint64_t sim_memory_next_id(void) {
    static _Atomic uint64_t next_id = 1;
    return atomic_fetch_add(&next_id, 1);
}

struct sim_range *sim_memory_range(enum sim_range_kind kind, struct sim_device *device,
                                   struct sim_context *context, uint64_t size, unsigned flags) {
    struct sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return NULL;
    range->size = size;
    range->kind = kind;
    range->flags = flags;
    range->id = sim_memory_next_id();
    range->context = context;
    range->device = device;
    return range;
}

uint64_t sim_memory_reachable(const struct sim_range *range) {
    bool large = range->kind == SIM_RANGE_DEVICE || range->kind == SIM_RANGE_POOL;
    return sim_round_up(range->size, large ? SIM_GRANULARITY : SIM_PAGE);
}

CUresult sim_memory_add(struct sim_range *range) {
    uint64_t bytes = sim_round_up(range->size, SIM_PAGE), reachable = sim_memory_reachable(range);
    bool charged = range->size <= range->device->memory && sim_device_charge(range->device, bytes);
    if (charged && !range->placed)
        range->base = sim_pages_new(reachable);
    bool soiled = range->base && !range->placed && range->kind == SIM_RANGE_DEVICE && sim_config_get()->dirty;
    if (charged && soiled && bytes <= SOILED_MOST)
        memset((void *)range->base, SIM_DIRT, bytes);
    if (charged && range->base && sim_ranges_insert(&sim_memory, range))
        return CUDA_SUCCESS;
    if (charged && !range->placed && range->base)
        sim_pages_free(range->base, reachable);
    if (charged)
        sim_device_refund(range->device, bytes);
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_memory_new(enum sim_range_kind kind, struct sim_device *device, struct sim_context *context,
                        uint64_t size, unsigned flags, uint64_t *base) {
    struct sim_range *range = sim_memory_range(kind, device, context, size, flags);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(sim_memory_add(range));
    *base = range->base;
    return CUDA_SUCCESS;
}

CUresult sim_memory_place(enum sim_range_kind kind, struct sim_device *device, struct sim_context *context,
                          uint64_t size, uint64_t base) {
    struct sim_range *range = sim_memory_range(kind, device, context, size, 0);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = base;
    range->placed = true;
    return sim_memory_add(range);
}

void sim_memory_dispose(struct sim_range *range) {
    uint64_t bytes = sim_round_up(range->size, SIM_PAGE);
    if (range->kind != SIM_RANGE_REGISTERED && !range->placed)
        sim_pages_free(range->base, sim_memory_reachable(range));
    if (range->file)
        close(range->file);
    if (range->kind != SIM_RANGE_REGISTERED && range->kind != SIM_RANGE_HOST &&
        range->kind != SIM_RANGE_IMPORTED)
        sim_device_refund(range->device, bytes);
    if (range->returned)
        range->returned(range->owner, range->size);
    free(range);
}

void sim_memory_delete(uint64_t base) {
    struct sim_range *range = sim_ranges_remove(&sim_memory, base, NULL);
    if (range)
        sim_memory_dispose(range);
}

void sim_memory_free_context(struct sim_context *context) {
    uint64_t base;
    while (sim_ranges_find_of(&sim_memory, context, &base))
        sim_memory_delete(base);
}

CUresult sim_span_look(uint64_t address, uint64_t size, struct sim_span *span) {
    struct sim_range range;
    *span = (struct sim_span){0};
    if (!sim_ranges_find(&sim_memory, address, &range))
        return CUDA_SUCCESS;
    span->kind = range.kind;
    span->device = range.device;
    span->host = range.kind == SIM_RANGE_HOST || range.kind == SIM_RANGE_REGISTERED || range.of_host;
    uint64_t end = address + size;
    SIM_REQUIRE(end >= address);
    for (;;) {
        SIM_REQUIRE(!range.freeing); /* it may be gone when the stream is there */
        span->sync_memops |= range.sync_memops;
        if (range.kind == SIM_RANGE_MAPPED) {
            SIM_REQUIRE(range.readable || range.host != CU_MEM_ACCESS_FLAGS_PROT_NONE);
            span->read_only |= !range.writable && range.host != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        if (end <= range.base + range.size)
            break;
        /* mappings, and what was registered, may lie side by side and be used as one */
        uint64_t next = range.base + range.size;
        bool goes_on = sim_ranges_find(&sim_memory, next, &range) && range.kind == span->kind;
        if (!goes_on && span->host && span->kind != SIM_RANGE_MAPPED) {
            *span = (struct sim_span){0}; /* registered in part: as good as pageable */
            return CUDA_SUCCESS;
        }
        SIM_REQUIRE(goes_on && (span->host || range.kind == SIM_RANGE_MAPPED));
    }
    span->known = true;
    return CUDA_SUCCESS;
}

CUresult sim_span_require(uint64_t address, uint64_t size, struct sim_span *span) {
    SIM_TRY(sim_span_look(address, size, span));
    return span->known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(pointer && size);
    SIM_TRY(sim_capture_check_unsafe());
    uint64_t base;
    SIM_TRY(sim_memory_new(SIM_RANGE_DEVICE, context->device, context, size, 0, &base));
    *pointer = base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned int element) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(pointer && pitch && width && height && width <= SIM_MAX_PITCH);
    SIM_REQUIRE(element == 4 || element == 8 || element == 16);
    size_t aligned = sim_round_up(width, SIM_PITCH_ALIGNMENT), size;
    SIM_REQUIRE(aligned <= SIM_MAX_PITCH);
    if (__builtin_mul_overflow(aligned, height, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(cuMemAlloc_v2(pointer, size));
    *pitch = aligned;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(pointer && size && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
    SIM_TRY(sim_capture_check_unsafe());
    uint64_t base;
    SIM_TRY(sim_memory_new(SIM_RANGE_MANAGED, context->device, context, size, flags, &base));
    *pointer = base;
    return CUDA_SUCCESS;
}

static bool can_be_freed(struct sim_range *range) {
    return (range->kind == SIM_RANGE_DEVICE || range->kind == SIM_RANGE_MANAGED ||
            range->kind == SIM_RANGE_POOL) &&
           !range->freeing && !range->placed;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    if (!pointer)
        return CUDA_SUCCESS;
    SIM_TRY(sim_capture_check_unsafe());
    struct sim_range range;
    SIM_REQUIRE(sim_ranges_find(&sim_memory, pointer, &range) && range.base == pointer);
    SIM_REQUIRE(can_be_freed(&range) || range.free_it);
    sim_device_drain(range.device); /* cuMemFree waits for kernels that may use the memory */
    if (range.free_it)
        return range.free_it(pointer);
    struct sim_range *removed = sim_ranges_remove(&sim_memory, pointer, can_be_freed);
    SIM_REQUIRE(removed);
    sim_memory_dispose(removed);
    return sim_context_error(context);
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(available && total);
    *total = context->device->memory;
    *available = context->device->memory - atomic_load(&context->device->memory_used);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
    struct sim_context *context;
    struct sim_range range;
    SIM_TRY(sim_context_current(&context));
    if (!sim_ranges_find(&sim_memory, pointer, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range.base;
    if (size)
        *size = range.size;
    return CUDA_SUCCESS;
}
