/* What a copy may touch, and how its rows and slices lie. */
#include "copy.h"

#include "array.h"
#include "context.h"
#include "host_memory.h"
#include "module.h"
#include "pending.h"
#include "session.h"
#include "shared.h"
#include "vmm.h"
#include "window.h"

/* Page-locked memory ends before what is mapped behind it may. */
static bool lies_in_host(const struct gf_mapping *mapping, uint64_t address, uint64_t size) {
    struct gf_host_range range;
    if (!gf_host_find(mapping->address, &range)) {
        return true;
    }
    uint64_t offset = address - range.address;
    return offset < range.size && size <= range.size - offset;
}

/* Page-locked memory that is named as the device's, the device has from then on. */
static bool is_shared_now(uint64_t address) {
    struct gf_host_range range;
    return gf_window_contains(address) && gf_host_find(address, &range) && range.in_window &&
           gf_context_current_handle() != 0 && gf_host_share(address) == CUDA_SUCCESS;
}

bool gf_device_range(uint64_t address, uint64_t size, bool write) {
    struct gf_allocation allocation;
    struct gf_mapping mapping;
    struct gf_module_memory variable;
    if (gf_window_find(address, &allocation)) {
        return size <= allocation.size - (address - allocation.address);
    }
    if (gf_mapping_find(address, &mapping) ||
        (is_shared_now(address) && gf_mapping_find(address, &mapping))) {
        return lies_in_host(&mapping, address, size) && gf_mapping_allows(address, size, write);
    }
    return gf_global_find(address, &variable) && size <= variable.size - (address - variable.base);
}

bool gf_address_is_device(uint64_t address) {
    struct gf_host_range range;
    struct gf_module_memory variable;
    return (gf_window_contains(address) && !gf_host_find(address, &range)) ||
           gf_global_find(address, &variable);
}

bool gf_copy_is_device(CUmemorytype type, uint64_t address) {
    struct gf_host_range range;
    struct gf_shared found;
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST:
        return gf_window_owns(address) && !gf_host_find(address, &range);
    case CU_MEMORYTYPE_DEVICE: /* page-locked memory too, if the device has it or can have it at that address
                                */
        return !gf_host_find(address, &range) || range.in_window || gf_shared_find(address, &found);
    default:
        return gf_address_is_device(address);
    }
}

CUresult gf_copy_check_side(const struct gf_side *side, const struct gf_extent *extent, bool write) {
    if (side->address == 0 || (extent->rows > 1 && side->pitch < extent->width)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t bytes;
    if (__builtin_mul_overflow(side->pitch, extent->rows - 1, &bytes) ||
        __builtin_add_overflow(bytes, extent->width, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return side->device && !gf_device_range(side->address, bytes, write) ? CUDA_ERROR_INVALID_VALUE
                                                                         : CUDA_SUCCESS;
}

struct gf_volume gf_copy_source(const CUDA_MEMCPY3D *p) {
    return (struct gf_volume){p->srcMemoryType, p->srcHost,  p->srcDevice, p->srcXInBytes, p->srcY,
                              p->srcZ,          p->srcPitch, p->srcHeight, p->srcArray};
}

struct gf_volume gf_copy_target(const CUDA_MEMCPY3D *p) {
    return (struct gf_volume){p->dstMemoryType, p->dstHost,  p->dstDevice, p->dstXInBytes, p->dstY,
                              p->dstZ,          p->dstPitch, p->dstHeight, p->dstArray};
}

static CUresult volume_side(const struct gf_volume *v, const CUDA_MEMCPY3D *size, struct gf_side *side,
                            uint64_t *slice) {
    uint64_t base;
    switch ((int)v->type) {
    case CU_MEMORYTYPE_HOST:
        base = (uint64_t)v->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = v->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        *side = (struct gf_side){.device = true, .pitch = size->WidthInBytes};
        *slice = side->pitch * size->Height;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (base == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->device = gf_copy_is_device(v->type, base);
    uint64_t width, rows, slices, end;
    if (__builtin_add_overflow(size->WidthInBytes, v->x, &width) ||
        __builtin_add_overflow(size->Height, v->y, &rows) ||
        __builtin_add_overflow(size->Depth, v->z, &slices)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool one_row = size->Height == 1 && size->Depth == 1 && v->y == 0 && v->z == 0;
    side->pitch = v->pitch == 0 && one_row ? width : v->pitch;
    bool one_slice = size->Depth == 1 && v->z == 0;
    uint64_t height = v->height == 0 && one_slice ? rows : v->height;
    int pitch_max = gf_device_here()->attributes[CU_DEVICE_ATTRIBUTE_MAX_PITCH];
    if (side->pitch < width || height < rows || v->pitch > (uint64_t)pitch_max ||
        (side->device && side->pitch > (uint64_t)pitch_max) ||
        __builtin_mul_overflow(side->pitch, height, slice) || __builtin_mul_overflow(*slice, slices, &end) ||
        __builtin_add_overflow(base, end, &end)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->address = base + v->z * *slice + v->y * side->pitch + v->x;
    return CUDA_SUCCESS;
}

CUresult gf_copy_side(const struct gf_volume *volume, const CUDA_MEMCPY3D *size, bool write,
                      struct gf_copy_side *found) {
    struct gf_side side;
    CUresult result = volume_side(volume, size, &side, &found->slice);
    /* Slices may have gaps between them: what is checked is from the first row to the last. */
    struct gf_extent all = {
        (size->Depth - 1) * found->slice + (size->Height - 1) * side.pitch + size->WidthInBytes, 1};
    struct gf_shared shared;
    found->shared = result == CUDA_SUCCESS && gf_shared_find(side.address, &shared);
    side.device = side.device || found->shared;
    result = result == CUDA_SUCCESS ? gf_copy_check_side(&side, &all, write) : result;
    found->device = side.device;
    found->address = side.address;
    found->pitch = side.pitch;
    if (result == CUDA_SUCCESS && !side.device) {
        gf_pending_wait((void *)side.address, all.width);
    }
    return result;
}

CUresult gf_copy_each(const CUDA_MEMCPY3D *p, CUresult (*visit)(void *data, const struct gf_row_copy *slice),
                      void *data) {
    const struct gf_volume source = gf_copy_source(p), target = gf_copy_target(p);
    struct gf_side from, to;
    uint64_t from_slice, to_slice;
    if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) {
        return CUDA_SUCCESS;
    }
    CUresult result = volume_side(&source, p, &from, &from_slice);
    result = result == CUDA_SUCCESS ? volume_side(&target, p, &to, &to_slice) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_extent extent = {p->WidthInBytes, p->Height};
    uint64_t slices = p->Depth;
    if (from_slice == from.pitch * p->Height && to_slice == to.pitch * p->Height) {
        extent.rows *= slices;
        slices = 1;
    }
    for (; slices > 0 && result == CUDA_SUCCESS; slices--) {
        result = visit(data, &(struct gf_row_copy){to.device, from.device, to.address, to.pitch, from.address,
                                                   from.pitch, extent.width, extent.rows});
        from.address += from_slice;
        to.address += to_slice;
    }
    return result;
}

CUresult gf_copy_place(const struct gf_volume *v, const CUDA_MEMCPY3D *size, struct gf_place *place) {
    uint64_t extents[3], texel;
    CUresult result = gf_array_look_up(v->array, &place->array, extents, &texel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (v->x % texel != 0 || size->WidthInBytes % texel != 0 || v->x > extents[0] ||
        size->WidthInBytes > extents[0] - v->x || v->y > extents[1] || size->Height > extents[1] - v->y ||
        v->z > extents[2] || size->Depth > extents[2] - v->z) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    place->device = gf_array_device(v->array);
    place->at = v->x;
    place->y = v->y;
    place->z = v->z;
    return CUDA_SUCCESS;
}

static CUresult box_end(const struct gf_volume *v, const CUDA_MEMCPY3D *size, struct gf_box_end *end) {
    struct gf_side side;
    uint64_t slice;
    CUresult result = volume_side(v, size, &side, &slice);
    if (result == CUDA_SUCCESS) {
        *end = (struct gf_box_end){side.device, {.at = side.address}, side.pitch, slice / side.pitch};
    }
    return result == CUDA_SUCCESS && v->type == CU_MEMORYTYPE_ARRAY ? gf_copy_place(v, size, &end->place)
                                                                    : result;
}

CUresult gf_copy_ends(const CUDA_MEMCPY3D *p, struct gf_box_end *to, struct gf_box_end *from) {
    const struct gf_volume source = gf_copy_source(p), target = gf_copy_target(p);
    CUresult result = box_end(&target, p, to);
    return result == CUDA_SUCCESS ? box_end(&source, p, from) : result;
}

static CUresult check_slice(void *data, const struct gf_row_copy *c) {
    const CUDA_MEMCPY3D *p = data;
    struct gf_side to = {c->to_device, c->to, c->to_pitch}, from = {c->from_device, c->from, c->from_pitch};
    struct gf_extent extent = {c->width, c->rows};
    CUresult result =
        p->dstMemoryType == CU_MEMORYTYPE_ARRAY ? CUDA_SUCCESS : gf_copy_check_side(&to, &extent, true);
    return result != CUDA_SUCCESS || p->srcMemoryType == CU_MEMORYTYPE_ARRAY
               ? result
               : gf_copy_check_side(&from, &extent, false);
}

CUresult gf_copy_check(const CUDA_MEMCPY3D *p) {
    struct gf_box_end to, from;
    CUresult result = gf_copy_ends(p, &to, &from);
    return result == CUDA_SUCCESS ? gf_copy_each(p, check_slice, (void *)p) : result;
}

bool gf_fill_fits(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows) {
    uint64_t bytes;
    return !__builtin_mul_overflow(width, element, &bytes) && address % element == 0 &&
           (rows <= 1 || (pitch >= bytes && pitch % element == 0));
}

/* The bytes from the first to the last, or 0: that is no fill. */
static uint64_t fill_span(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows) {
    uint64_t span;
    bool refused = !gf_fill_fits(address, pitch, element, width, rows) ||
                   __builtin_mul_overflow(pitch, rows - 1, &span) ||
                   __builtin_add_overflow(span, (uint64_t)width * element, &span);
    return refused ? 0 : span;
}

CUresult gf_fill_check(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows) {
    uint64_t span = fill_span(address, pitch, element, width, rows);
    return span > 0 && gf_device_range(address, span, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_fill_node_check(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows) {
    uint64_t span = fill_span(address, pitch, element, width, rows);
    bool nowhere = address != 0 && !gf_device_range(address, 1, false);
    return span > 0 && (nowhere || gf_device_range(address, span, true)) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}
