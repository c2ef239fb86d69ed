/* All copies come down to rows: in, out, or on the device (WIRE.md 8). */
#include "copy.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "channel.h"
#include "context.h"
#include "gpuferry/messages.h"
#include "host_call.h"
#include "host_memory.h"
#include "module.h"
#include "pending.h"
#include "shared.h"
#include "stream.h"
#include "vmm.h"
#include "waiting.h"
#include "window.h"

#define OUT_CALLS   8           /* GF_CHUNK each under way at once: 32 MiB */
#define CAPTURE_MAX (64u << 10) /* of a pageable source: read when the call is made, as the driver does */

/* One side of a copy: rows in host or device memory. */
struct side {
    bool device;
    uint64_t address, pitch;
};

struct extent {
    uint64_t width, rows;
};

static uint64_t span(const struct side *side, const struct extent *extent) {
    return side->pitch * (extent->rows - 1) + extent->width;
}

bool gf_device_range(uint64_t address, uint64_t size, bool write) {
    struct gf_allocation allocation;
    struct gf_mapping mapping;
    uint64_t base, extent;
    if (gf_window_find(address, &allocation)) {
        return size <= allocation.size - (address - allocation.address);
    }
    if (gf_mapping_find(address, &mapping)) {
        return gf_mapping_allows(address, size, write);
    }
    return gf_global_find(address, &base, &extent) && size <= extent - (address - base);
}

/* Whether the program wants operations on it to be done when they return (SYNC_MEMOPS). */
static bool is_synchronous(uint64_t address) {
    struct gf_allocation allocation;
    return gf_window_find(address, &allocation) && allocation.synchronous;
}

/* An address says by itself whether it is the device's. */
static bool is_device(uint64_t address) {
    uint64_t base, size;
    return gf_window_contains(address) || gf_global_find(address, &base, &size);
}

/* Cuts rows into pieces that fit a frame: several rows at a time, or parts of one row. */
struct cutter {
    struct extent all, piece;
    uint64_t row, offset;
};

static bool next_piece(struct cutter *cutter) {
    cutter->offset += cutter->piece.width;
    if (cutter->offset == cutter->all.width) {
        cutter->row += cutter->piece.rows;
        cutter->offset = 0;
    }
    if (cutter->row == cutter->all.rows) {
        return false;
    }
    uint64_t rows = cutter->all.rows - cutter->row, fitting = GF_CHUNK / cutter->all.width;
    uint64_t left = cutter->all.width - cutter->offset;
    cutter->piece = fitting > 0 ? (struct extent){cutter->all.width, fitting < rows ? fitting : rows}
                                : (struct extent){left < GF_CHUNK ? left : GF_CHUNK, 1};
    return true;
}

static uint64_t piece_address(const struct cutter *cutter, const struct side *side) {
    return side->address + cutter->row * side->pitch + cutter->offset;
}

static struct cutter cut(const struct extent *extent) {
    return (struct cutter){.all = *extent};
}

/* `stream`: or the ticket of a host call, which both operations lay out alike. */
static CUresult send_pieces(uint16_t op, const struct side *to, const struct side *from,
                            const struct extent *extent, uint64_t stream) {
    for (struct cutter c = cut(extent); next_piece(&c);) {
        struct gf_req_sessionCopyIn request = {stream, piece_address(&c, to), to->pitch, c.piece.width,
                                               c.piece.rows};
        struct gf_rows rows = {(char *)piece_address(&c, from), from->pitch, c.piece.width, c.piece.rows};
        CUresult result = gf_send_rows(op, &request, sizeof request, &rows);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* A copy behind a function of the program, which may write what is copied. What copies out before it brought
 * is there when the server asks. */
struct late_copy {
    struct gf_host_task base;
    struct side to, from;
    struct extent extent;
    char captured[];
};

static void send_late(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    const struct late_copy *late = (struct late_copy *)call;
    (void)status;
    CUresult result = send_pieces(GF_OP_sessionHostCopyIn, &late->to, &late->from, &late->extent, ticket);
    if (result != CUDA_SUCCESS) {
        gf_channel_latch(result);
    }
}

/* What is not page-locked is read now, as CUDA does. */
static CUresult copy_in_late(const struct side *to, const struct side *from, const struct extent *extent,
                             uint64_t stream, bool capture) {
    uint64_t bytes = capture ? extent->width * extent->rows : 0;
    struct late_copy *late = calloc(1, sizeof *late + bytes);
    if (late == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    late->base = (struct gf_host_task){.run = send_late, .copies = true};
    late->to = *to;
    late->from = *from;
    late->extent = *extent;
    if (capture) {
        gf_pending_wait((void *)from->address, span(from, extent));
        for (uint64_t row = 0; row < extent->rows; row++) {
            memcpy(late->captured + row * extent->width, (char *)from->address + row * from->pitch,
                   extent->width);
        }
        late->from = (struct side){false, (uint64_t)late->captured, extent->width};
    }
    CUresult result = gf_host_call_add(&late->base);
    result = result == CUDA_SUCCESS ? gf_host_call_enqueue(&late->base, stream, false) : result;
    if (result != CUDA_SUCCESS) {
        free(late);
    }
    return result;
}

CUresult gf_wait_for_stream(uint64_t stream) {
    struct gf_req_cuStreamSynchronize request = {.hStream = stream};
    return gf_call_struct(GF_OP_cuStreamSynchronize, &request, sizeof request, NULL, 0);
}

static CUresult copy_in(const struct side *to, const struct side *from, const struct extent *extent,
                        uint64_t stream, bool may_run_behind) {
    gf_window_copy_enqueued();
    if (gf_host_calls_pending()) {
        bool locked = gf_host_is_locked((void *)from->address, span(from, extent));
        if (may_run_behind && (locked || extent->width * extent->rows <= CAPTURE_MAX)) {
            return copy_in_late(to, from, extent, stream, !locked);
        }
        CUresult result = gf_wait_for_stream(stream);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    gf_pending_wait((void *)from->address, span(from, extent));
    return send_pieces(GF_OP_sessionCopyIn, to, from, extent, stream);
}

/* Waits for the data; several pieces are under way at a time. */
static CUresult copy_out(const struct side *to, const struct side *from, const struct extent *extent,
                         uint64_t stream, unsigned *requests) {
    struct gf_call calls[OUT_CALLS];
    unsigned started = 0, finished = 0;
    CUresult result = gf_host_calls_pending() ? gf_wait_for_stream(stream) : CUDA_SUCCESS;
    struct cutter c = cut(extent);
    bool more = result == CUDA_SUCCESS && next_piece(&c);
    while (more || finished < started) {
        if (more && started - finished < OUT_CALLS && result == CUDA_SUCCESS) {
            struct gf_req_sessionCopyOut request = {stream, piece_address(&c, from), from->pitch,
                                                    c.piece.width, c.piece.rows};
            struct gf_call *call = &calls[started++ % OUT_CALLS];
            *call = (struct gf_call){
                .op = GF_OP_sessionCopyOut,
                .rows = {(char *)piece_address(&c, to), to->pitch, c.piece.width, c.piece.rows}};
            result = gf_call_start(call, &(struct iovec){&request, sizeof request}, 1);
            more = next_piece(&c) && result == CUDA_SUCCESS;
            continue;
        }
        struct gf_call *call = &calls[finished++ % OUT_CALLS];
        CUresult waited = gf_call_wait(call);
        free(call->payload);
        if (result == CUDA_SUCCESS && waited != CUDA_SUCCESS) {
            result = waited;
            more = false;
        }
    }
    *requests = started;
    return result;
}

static CUresult copy_out_and_wait(const struct side *to, const struct side *from, const struct extent *extent,
                                  uint64_t stream, CUstream handle) {
    unsigned requests;
    uint64_t before = gf_channel_frames();
    CUresult result = copy_out(to, from, extent, stream, &requests);
    if (result == CUDA_SUCCESS) {
        gf_stream_waited(handle, before, requests);
    }
    return result;
}

static CUresult copy_out_behind(const struct side *to, const struct side *from, const struct extent *extent,
                                uint64_t stream) {
    for (struct cutter c = cut(extent); next_piece(&c);) {
        struct gf_req_sessionCopyOut request = {stream, piece_address(&c, from), from->pitch, c.piece.width,
                                                c.piece.rows};
        struct gf_rows rows = {(char *)piece_address(&c, to), to->pitch, c.piece.width, c.piece.rows};
        CUresult result = gf_pending_start(&request, sizeof request, &rows);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult copy_host(const struct side *to, const struct side *from, const struct extent *extent) {
    gf_pending_wait((void *)from->address, span(from, extent));
    gf_pending_wait((void *)to->address, span(to, extent));
    for (uint64_t row = 0; row < extent->rows; row++) {
        memmove((char *)to->address + row * to->pitch, (char *)from->address + row * from->pitch,
                extent->width);
    }
    return CUDA_SUCCESS;
}

static CUresult copy_within(const struct side *to, const struct side *from, const struct extent *extent,
                            uint64_t stream) {
    struct gf_req_sessionCopy request = {stream,      to->address,   to->pitch,   from->address,
                                         from->pitch, extent->width, extent->rows};
    gf_window_copy_enqueued();
    return gf_send_struct(GF_OP_sessionCopy, &request);
}

static CUresult check_side(const struct side *side, const struct extent *extent, bool write) {
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

/* Rows that follow each other without a gap are one. */
static void join_rows(struct side *to, struct side *from, struct extent *extent) {
    if (extent->rows > 1 && to->pitch == extent->width && from->pitch == extent->width) {
        extent->width *= extent->rows;
        extent->rows = 1;
    }
    if (extent->rows == 1) {
        to->pitch = from->pitch = extent->width;
    }
}

/* What the program shares with the device is copied as memory of the device, whatever the program calls it.
 */
static bool is_shared(struct side *side) {
    struct gf_shared found;
    bool shared = gf_shared_find(side->address, &found);
    side->device = side->device || shared;
    return shared;
}

static CUresult copy(struct side to, struct side from, struct extent extent, CUstream cuda_stream,
                     bool may_run_behind) {
    uint64_t stream;
    CUresult result = gf_wire_stream(cuda_stream, &stream);
    if (result != CUDA_SUCCESS || extent.width == 0 || extent.rows == 0) {
        return result;
    }
    bool shared = is_shared(&to);
    shared = is_shared(&from) || shared;
    if ((result = check_side(&to, &extent, true)) != CUDA_SUCCESS ||
        (result = check_side(&from, &extent, false)) != CUDA_SUCCESS) {
        return result;
    }
    join_rows(&to, &from, &extent);
    if (shared) {
        gf_window_work_enqueued();
    }
    if (to.device && from.device && shared && !may_run_behind) {
        result = copy_within(&to, &from, &extent, stream);
        return result == CUDA_SUCCESS ? gf_wait_for_stream(stream) : result;
    }
    if (to.device) {
        return from.device ? copy_within(&to, &from, &extent, stream)
                           : copy_in(&to, &from, &extent, stream, may_run_behind);
    }
    if (!from.device) {
        return copy_host(&to, &from, &extent);
    }
    bool behind = may_run_behind && gf_host_is_locked((void *)to.address, span(&to, &extent)) &&
                  !is_synchronous(from.address);
    return behind ? copy_out_behind(&to, &from, &extent, stream)
                  : copy_out_and_wait(&to, &from, &extent, stream, cuda_stream);
}

static struct side on_device(uint64_t address, uint64_t pitch) {
    return (struct side){true, address, pitch};
}

static struct side on_host(const void *address, uint64_t pitch) {
    return (struct side){false, (uint64_t)address, pitch};
}

CUresult gf_copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool behind) {
    return copy(on_device(to, size), on_host(from, size), (struct extent){size, 1}, stream, behind);
}

CUresult gf_copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream, bool behind) {
    return copy(on_host(to, size), on_device(from, size), (struct extent){size, 1}, stream, behind);
}

CUresult gf_copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(on_device(to, size), on_device(from, size), (struct extent){size, 1}, stream, true);
}

CUresult gf_copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool behind) {
    return copy((struct side){is_device(to), to, size}, (struct side){is_device(from), from, size},
                (struct extent){size, 1}, stream, behind);
}

static CUresult check_peers(CUcontext to, CUcontext from) {
    struct gf_context *context;
    uint64_t wire;
    if (to == NULL || from == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult result = gf_context_look_up(to, &context, &wire);
    return result != CUDA_SUCCESS ? result : gf_context_look_up(from, &context, &wire);
}

CUresult gf_copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                         size_t size, CUstream stream) {
    CUresult result = check_peers(to_context, from_context);
    return result != CUDA_SUCCESS ? result : gf_copy_on_device(to, from, size, stream);
}

static CUresult volume_side(const struct gf_volume *v, const CUDA_MEMCPY3D *size, struct side *side,
                            uint64_t *slice) {
    uint64_t base;
    switch ((int)v->type) {
    case CU_MEMORYTYPE_HOST:
        base = (uint64_t)v->host;
        side->device = false;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = v->device;
        side->device = true;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = v->device;
        side->device = is_device(base);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool one_row = size->Height == 1 && size->Depth == 1 && v->y == 0 && v->z == 0;
    side->pitch = v->pitch == 0 && one_row ? size->WidthInBytes + v->x : v->pitch;
    bool one_slice = size->Depth == 1 && v->z == 0;
    uint64_t height = v->height == 0 && one_slice ? size->Height + v->y : v->height;
    int pitch_max = gf_session.device.attributes[CU_DEVICE_ATTRIBUTE_MAX_PITCH];
    if (side->pitch < size->WidthInBytes + v->x || height < size->Height + v->y ||
        (side->device && side->pitch > (uint64_t)pitch_max)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *slice = side->pitch * height;
    side->address = base + v->z * *slice + v->y * side->pitch + v->x;
    return CUDA_SUCCESS;
}

CUresult gf_copy_side(const struct gf_volume *volume, const CUDA_MEMCPY3D *size, bool write,
                      struct gf_copy_side *found) {
    struct side side;
    CUresult result = volume_side(volume, size, &side, &found->slice);
    /* Slices may have gaps between them: what is checked is from the first row to the last. */
    struct extent all = {
        (size->Depth - 1) * found->slice + (size->Height - 1) * side.pitch + size->WidthInBytes, 1};
    found->shared = result == CUDA_SUCCESS && is_shared(&side);
    result = result == CUDA_SUCCESS ? check_side(&side, &all, write) : result;
    found->device = side.device;
    found->address = side.address;
    found->pitch = side.pitch;
    if (result == CUDA_SUCCESS && !side.device) {
        gf_pending_wait((void *)side.address, all.width);
    }
    return result;
}

CUresult gf_copy_volume(const CUDA_MEMCPY3D *p, CUstream stream, bool behind) {
    const struct gf_volume source = {p->srcMemoryType, p->srcHost,  p->srcDevice, p->srcXInBytes, p->srcY,
                                     p->srcZ,          p->srcPitch, p->srcHeight, p->srcArray};
    const struct gf_volume target = {p->dstMemoryType, p->dstHost,  p->dstDevice, p->dstXInBytes, p->dstY,
                                     p->dstZ,          p->dstPitch, p->dstHeight, p->dstArray};
    struct side from, to;
    uint64_t from_slice, to_slice;
    if (p->srcLOD != 0 || p->dstLOD != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) {
        return CUDA_SUCCESS;
    }
    if (source.type == CU_MEMORYTYPE_ARRAY || target.type == CU_MEMORYTYPE_ARRAY) {
        return gf_copy_boxes(&target, &source, p, stream);
    }
    CUresult result = volume_side(&source, p, &from, &from_slice);
    result = result == CUDA_SUCCESS ? volume_side(&target, p, &to, &to_slice) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct extent extent = {p->WidthInBytes, p->Height};
    uint64_t slices = p->Depth;
    if (from_slice == from.pitch * p->Height && to_slice == to.pitch * p->Height) {
        extent.rows *= slices;
        slices = 1;
    }
    for (; slices > 0 && result == CUDA_SUCCESS; slices--) {
        result = copy(to, from, extent, stream, behind);
        from.address += from_slice;
        to.address += to_slice;
    }
    return result;
}

CUresult gf_copy_plane(const CUDA_MEMCPY2D *p, CUstream stream, bool behind) {
    CUDA_MEMCPY3D volume = {
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = 1,
    };
    return gf_copy_volume(&volume, stream, behind);
}

CUresult gf_copy_volume_between(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool behind) {
    CUDA_MEMCPY3D volume = {
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcZ = p->srcZ,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .srcHeight = p->srcHeight,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstZ = p->dstZ,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .dstHeight = p->dstHeight,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = p->Depth,
    };
    CUresult result = check_peers(p->dstContext, p->srcContext);
    return result != CUDA_SUCCESS ? result : gf_copy_volume(&volume, stream, behind);
}
