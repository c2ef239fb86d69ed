/* All copies come down to rows: in, out, or on the device (WIRE.md 8). */
#include "copy.h"

#include <stdlib.h>
#include <string.h>

#include "arrivals.h"
#include "calls.h"
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "driver_interop/volumes.h"
#include "freed.h"
#include "freeing.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "host_call.h"
#include "hooks.h"
#include "host_memory.h"
#include "mirror.h"
#include "pending.h"
#include "session.h"
#include "shared.h"
#include "stream.h"
#include "vmm.h"
#include "waiting.h"
#include "window.h"
#include "word.h"

#define CAPTURE_MAX (64u << 10) /* of a pageable source: read when the call is made, as the driver does */

static uint64_t span(const struct gf_side *side, const struct gf_extent *extent) {
    return side->pitch * (extent->rows - 1) + extent->width;
}

bool gf_is_synchronous(uint64_t address) {
    struct gf_allocation allocation;
    return gf_window_find(address, &allocation) ? allocation.synchronous : gf_global_is_synchronous(address);
}

/* Whether other processes may look at it as soon as a call has returned. */
static bool is_open(uint64_t address) {
    struct gf_allocation allocation;
    return gf_window_find(address, &allocation) && allocation.open;
}

/* What comes in the legacy stream the server has all others wait for; in a thread's own, nobody. What the
 * device shares with the program or with other processes is looked at without asking anybody, and a word may
 * have to be written meanwhile. */
bool gf_copy_in_waits(uint64_t stream) {
    if (stream != 0 || gf_words_are_awaited() || gf_shared_at_work() || atomic_load(&gf_session.watched)) {
        return true;
    }
    gf_copied_in();
    return false;
}

/* Cuts rows into pieces that fit a frame: several rows at a time, or parts of one row. */
struct cutter {
    struct gf_extent all, piece;
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
    cutter->piece = fitting > 0 ? (struct gf_extent){cutter->all.width, fitting < rows ? fitting : rows}
                                : (struct gf_extent){left < GF_CHUNK ? left : GF_CHUNK, 1};
    return true;
}

static uint64_t piece_address(const struct cutter *cutter, const struct gf_side *side) {
    return side->address + cutter->row * side->pitch + cutter->offset;
}

static struct cutter cut(const struct gf_extent *extent) {
    return (struct cutter){.all = *extent};
}

/* `stream`: or the ticket of a host call, which both operations lay out alike. */
static CUresult send_pieces(uint16_t op, const struct gf_side *to, const struct gf_side *from,
                            const struct gf_extent *extent, uint64_t stream) {
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

/* A copy behind a function of the program, or a word that it writes, before which it may write what is
 * copied. What copies out before it brought is there when the server asks. */
struct late_copy {
    struct gf_host_task base;
    struct gf_side to, from;
    struct gf_extent extent;
    char captured[];
};

static void send_late(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    const struct late_copy *late = (struct late_copy *)call;
    (void)status;
    CUresult result = send_pieces(GF_OP_sessionHostCopyIn, &late->to, &late->from, &late->extent, ticket);
    if (result != CUDA_SUCCESS) {
        gf_channel_latch(gf_handle_slot(call->context) + 1, result);
    }
}

static CUresult fetch_pieces(const struct gf_side *to, const struct gf_side *from,
                             const struct gf_extent *extent, uint64_t ticket) {
    CUresult result = CUDA_SUCCESS;
    for (struct cutter c = cut(extent); result == CUDA_SUCCESS && next_piece(&c);) {
        struct gf_req_sessionHostCopyOut request = {ticket, piece_address(&c, from), from->pitch,
                                                    c.piece.width, c.piece.rows};
        struct gf_call call = {
            .op = GF_OP_sessionHostCopyOut,
            .rows = {(char *)piece_address(&c, to), to->pitch, c.piece.width, c.piece.rows}};
        result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
        free(call.payload);
    }
    return result;
}

static void fetch_late(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    const struct late_copy *late = (struct late_copy *)call;
    (void)status;
    CUresult result = fetch_pieces(&late->to, &late->from, &late->extent, ticket);
    if (result != CUDA_SUCCESS) {
        gf_channel_latch(gf_handle_slot(call->context) + 1, result);
    }
}

static struct late_copy *late_copy(const struct gf_side *to, const struct gf_side *from,
                                   const struct gf_extent *extent, uint64_t captured) {
    struct late_copy *late = calloc(1, sizeof *late + captured);
    if (late != NULL) {
        late->base = (struct gf_host_task){.run = to->device ? send_late : fetch_late, .copies = true};
        late->to = *to;
        late->from = *from;
        late->extent = *extent;
    }
    return late;
}

static CUresult enqueue_late(struct late_copy *late, uint64_t stream) {
    CUresult result = gf_host_call_add(&late->base);
    result = result == CUDA_SUCCESS ? gf_host_call_enqueue(&late->base, stream, false) : result;
    if (result != CUDA_SUCCESS) {
        free(late);
    }
    return result;
}

/* What is not page-locked is read now, as CUDA does. */
static CUresult copy_in_late(const struct gf_side *to, const struct gf_side *from,
                             const struct gf_extent *extent, uint64_t stream, bool capture) {
    struct late_copy *late = late_copy(to, from, extent, capture ? extent->width * extent->rows : 0);
    if (late == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (capture) {
        gf_pending_wait((void *)from->address, span(from, extent));
        for (uint64_t row = 0; row < extent->rows; row++) {
            memcpy(late->captured + row * extent->width, (char *)from->address + row * from->pitch,
                   extent->width);
        }
        late->from = (struct gf_side){false, (uint64_t)late->captured, extent->width};
    }
    return enqueue_late(late, stream);
}

/* Whether another process may have memory that was registered, and write it until the stream is there. */
static bool is_of_others(uint64_t address) {
    struct gf_host_range range;
    return atomic_load(&gf_session.watched) && gf_host_find(address, &range) && range.registered;
}

static CUresult copy_in(const struct gf_side *to, const struct gf_side *from, const struct gf_extent *extent,
                        uint64_t stream, bool may_run_behind) {
    gf_window_copy_enqueued();
    bool calls = gf_host_calls_pending(), words = gf_words_are_awaited() || is_of_others(from->address);
    /* What is sent for the legacy stream all others wait for on the server: one may have to write the word.
     */
    if (may_run_behind ? calls || words : words && stream == 0) {
        bool stays = !may_run_behind || gf_host_is_locked((void *)from->address, span(from, extent));
        if (stays || ((calls || stream == 0) && extent->width * extent->rows <= CAPTURE_MAX)) {
            return copy_in_late(to, from, extent, stream, !stays);
        }
    }
    if (calls) {
        CUresult result = gf_wait_for_stream(stream);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    gf_pending_wait((void *)from->address, span(from, extent));
    return send_pieces(GF_OP_sessionCopyIn, to, from, extent,
                       may_run_behind ? gf_wire_behind(stream) : stream);
}

void gf_copied_out(void) {
    gf_hook(GF_AFTER_WAIT);
    gf_hook(GF_DONE);
}

/* A copy while it is made: what of it is under way, and what has to be waited for at its end. */
struct copying {
    CUstream handle;
    bool may_run_behind;
    uint64_t stream; /* as it travels */
    uint32_t context_id;
    uint64_t before; /* frames, when the first rows were asked for */
    struct gf_arrivals arrivals;
    bool across;  /* between two devices, which were waited for */
    bool waits;   /* for the stream */
    bool unified; /* the program named addresses alone */
};

static CUresult copy_out(const struct gf_side *to, const struct gf_side *from, const struct gf_extent *extent,
                         struct copying *copying) {
    CUresult result = gf_host_calls_pending() ? gf_wait_for_stream(copying->stream) : CUDA_SUCCESS;
    if (copying->arrivals.started == 0) {
        copying->before = gf_channel_frames();
    }
    for (struct cutter c = cut(extent); result == CUDA_SUCCESS && next_piece(&c);) {
        struct gf_req_sessionCopyOut request = {copying->stream, piece_address(&c, from), from->pitch,
                                                c.piece.width, c.piece.rows};
        struct gf_rows rows = {(char *)piece_address(&c, to), to->pitch, c.piece.width, c.piece.rows};
        result = gf_arrival_start(&copying->arrivals, GF_OP_sessionCopyOut, &request, sizeof request, &rows);
    }
    return result;
}

static CUresult await_arrivals(struct copying *copying) {
    CUresult result = gf_arrivals_wait(&copying->arrivals);
    if (result == CUDA_SUCCESS && copying->arrivals.started > 0) {
        gf_stream_waited(copying->handle, copying->before, copying->arrivals.started);
        gf_copied_out();
    }
    return result;
}

static CUresult copy_out_behind(const struct gf_side *to, const struct gf_side *from,
                                const struct gf_extent *extent, uint64_t stream) {
    if (gf_words_are_awaited()) {
        struct late_copy *late = late_copy(to, from, extent, 0);
        return late == NULL ? CUDA_ERROR_OUT_OF_MEMORY : enqueue_late(late, stream);
    }
    for (struct cutter c = cut(extent); next_piece(&c);) {
        struct gf_req_sessionCopyOut request = {stream, piece_address(&c, from), from->pitch, c.piece.width,
                                                c.piece.rows};
        struct gf_rows rows = {(char *)piece_address(&c, to), to->pitch, c.piece.width, c.piece.rows};
        CUresult result = gf_pending_start(GF_OP_sessionCopyOut, &request, sizeof request, &rows);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult copy_host(const struct gf_side *to, const struct gf_side *from,
                          const struct gf_extent *extent) {
    gf_pending_wait((void *)from->address, span(from, extent));
    gf_pending_wait((void *)to->address, span(to, extent));
    for (uint64_t row = 0; row < extent->rows; row++) {
        memmove((char *)to->address + row * to->pitch, (char *)from->address + row * from->pitch,
                extent->width);
    }
    return CUDA_SUCCESS;
}

static CUresult copy_within(const struct gf_side *to, const struct gf_side *from,
                            const struct gf_extent *extent, uint64_t stream) {
    struct gf_req_sessionCopy request = {stream,      to->address,   to->pitch,   from->address,
                                         from->pitch, extent->width, extent->rows};
    gf_window_copy_enqueued();
    return gf_send_struct(GF_OP_sessionCopy, &request);
}

/* Rows that follow each other without a gap are one. */
static void join_rows(struct gf_side *to, struct gf_side *from, struct gf_extent *extent) {
    if (extent->rows > 1 && to->pitch == extent->width && from->pitch == extent->width) {
        extent->width *= extent->rows;
        extent->rows = 1;
    }
    if (extent->rows == 1) {
        to->pitch = from->pitch = extent->width;
    }
}

/* What the program shares with the device is copied as memory of the device, whatever the program calls it,
 * and so is what can be nothing else; other page-locked memory as the program's. */
static bool is_shared(struct gf_side *side, const struct gf_extent *extent) {
    struct gf_shared found;
    struct gf_mirror mirror;
    bool shared = gf_shared_find(side->address, &found);
    bool device = side->device || gf_window_owns(side->address);
    side->device = shared || (device && !gf_host_is_locked((void *)side->address, span(side, extent)));
    return shared || gf_mirror_find(side->address, false, &mirror);
}

static CUmemorytype type_of(const struct gf_side *side, const struct copying *copying) {
    return copying->unified ? CU_MEMORYTYPE_UNIFIED
                            : (side->device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
}

/* A copy of one row, as the program asked for it. */
static bool capture(const struct gf_side *to, const struct gf_side *from, uint64_t size,
                    const struct copying *copying, CUresult *result) {
    CUmemorytype to_type = type_of(to, copying), from_type = type_of(from, copying);
    const CUDA_MEMCPY3D node = {
        .srcMemoryType = from_type,
        .srcHost = from_type == CU_MEMORYTYPE_HOST ? (const void *)from->address : NULL,
        .srcDevice = from_type == CU_MEMORYTYPE_HOST ? 0 : from->address,
        .dstMemoryType = to_type,
        .dstHost = to_type == CU_MEMORYTYPE_HOST ? (void *)to->address : NULL,
        .dstDevice = to_type == CU_MEMORYTYPE_HOST ? 0 : to->address,
        .WidthInBytes = size,
        .Height = 1,
        .Depth = 1,
    };
    return gf_capture_takes(copying->handle, GF_FORM_MEMCPY, &node, result);
}

/* Finds out whose memory both sides are, and whether they may be copied. */
static CUresult look(struct gf_side *to, struct gf_side *from, const struct gf_extent *extent, bool *shared) {
    bool target = is_shared(to, extent), source = is_shared(from, extent);
    *shared = target || source;
    CUresult result = gf_copy_check_side(to, extent, true);
    return result == CUDA_SUCCESS ? gf_copy_check_side(from, extent, false) : result;
}

bool gf_copy_mirror(uint64_t *address, uint64_t size) {
    struct gf_mirror mirror;
    if (gf_words_are_awaited() || atomic_load(&gf_session.watched) ||
        !gf_mirror_find(*address, true, &mirror) || size > mirror.size - (*address - mirror.host)) {
        return false;
    }
    *address = mirror.device + (*address - mirror.host);
    return true;
}

/* Registered memory that the device has a copy of is copied there: kernels that come before and behind in the
 * stream may write and read it. */
static bool is_mirrored(struct gf_side *side, const struct gf_extent *extent) {
    side->device = gf_copy_mirror(&side->address, span(side, extent));
    return side->device;
}

CUresult gf_copy_across(CUdevice to, CUdevice from) {
    CUresult result = gf_wait_for_device(to);
    return result == CUDA_SUCCESS ? gf_wait_for_device(from) : result;
}

static bool is_across(const struct gf_side *to, const struct gf_side *from) {
    return gf_session.device_count > 1 && to->device && from->device && gf_window_contains(to->address) &&
           gf_window_contains(from->address) &&
           gf_mapping_device(to->address) != gf_mapping_device(from->address);
}

static CUresult copy_rows(struct gf_side to, struct gf_side from, struct gf_extent extent,
                          struct copying *copying) {
    const uint64_t stream = copying->stream;
    const bool may_run_behind = copying->may_run_behind;
    const struct gf_side given_to = to, given_from = from;
    bool shared;
    CUresult result = look(&to, &from, &extent, &shared);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    join_rows(&to, &from, &extent);
    if (gf_capture_any() && capture(&given_to, &given_from, extent.width, copying, &result)) {
        return result;
    }
    if (to.device != from.device) {
        shared = is_mirrored(to.device ? &from : &to, &extent) || shared;
    }
    if (shared) {
        gf_window_work_enqueued();
    }
    bool across = !may_run_behind && !shared && is_across(&to, &from);
    if (across && !copying->across) {
        result = gf_copy_across(gf_mapping_device(to.address), gf_mapping_device(from.address));
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    copying->across = across;
    if (to.device) {
        bool waits =
            !may_run_behind &&
            (across || (from.device ? shared || gf_is_synchronous(from.address) : gf_copy_in_waits(stream)) ||
             gf_is_synchronous(to.address) || is_open(to.address) || gf_context_is_synchronous());
        copying->waits = copying->waits || waits;
        return from.device ? copy_within(&to, &from, &extent, stream)
                           : copy_in(&to, &from, &extent, stream, may_run_behind);
    }
    if (!from.device) { /* which CUDA does while the caller waits, behind what the stream was given before */
        result = gf_cuStreamSynchronize(copying->handle);
        return result == CUDA_SUCCESS ? copy_host(&to, &from, &extent) : result;
    }
    bool behind = may_run_behind && gf_host_is_locked((void *)to.address, span(&to, &extent));
    return behind ? copy_out_behind(&to, &from, &extent, stream) : copy_out(&to, &from, &extent, copying);
}

static CUresult begin(struct copying *copying) {
    CUresult result = gf_usable_stream(copying->handle, &copying->stream);
    if (result == CUDA_SUCCESS) {
        copying->context_id = gf_stream_enter(copying->stream);
    }
    return result;
}

/* Rows that are under way arrive, also where others could not be copied. */
static CUresult end(struct copying *copying, CUresult copied) {
    CUresult arrived = await_arrivals(copying), result = copied == CUDA_SUCCESS ? arrived : copied;
    result = result == CUDA_SUCCESS && copying->waits ? gf_wait_for_stream(copying->stream) : result;
    gf_thread.context_id = copying->context_id;
    return result;
}

static CUresult copy_row(struct gf_side to, struct gf_side from, uint64_t size, struct copying copying) {
    if (size == 0) {
        return gf_usable_stream(copying.handle, &copying.stream);
    }
    CUresult result = begin(&copying);
    return result == CUDA_SUCCESS ? end(&copying, copy_rows(to, from, (struct gf_extent){size, 1}, &copying))
                                  : result;
}

static CUresult copy(struct gf_side to, struct gf_side from, uint64_t size, CUstream stream, bool behind) {
    return copy_row(to, from, size, (struct copying){.handle = stream, .may_run_behind = behind});
}

static struct gf_side on_device(uint64_t address, uint64_t pitch) {
    return (struct gf_side){true, address, pitch};
}

static struct gf_side on_host(const void *address, uint64_t pitch) {
    return (struct gf_side){false, (uint64_t)address, pitch};
}

CUresult gf_copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool behind) {
    return copy(on_device(to, size), on_host(from, size), size, stream, behind);
}

CUresult gf_copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream, bool behind) {
    return copy(on_host(to, size), on_device(from, size), size, stream, behind);
}

CUresult gf_copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool behind) {
    return copy(on_device(to, size), on_device(from, size), size, stream, behind);
}

CUresult gf_copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool behind) {
    return copy_row((struct gf_side){gf_address_is_device(to), to, size},
                    (struct gf_side){gf_address_is_device(from), from, size}, size,
                    (struct copying){.handle = stream, .may_run_behind = behind, .unified = true});
}

static CUresult check_peer(CUcontext handle) {
    struct gf_context *context = gf_context_find(handle);
    return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : gf_context_usable(context);
}

static CUresult check_peers(CUcontext to, CUcontext from) {
    CUresult result = check_peer(to);
    return result != CUDA_SUCCESS ? result : check_peer(from);
}

/* Whether a copy concerns more than the current context: streams of others do not wait for it. */
static bool is_foreign(CUcontext to, CUcontext from) {
    CUcontext current = (CUcontext)gf_context_current_handle();
    return to != current || from != current;
}

/* A copy between contexts comes behind all that both were given. */
static CUresult settle(CUcontext to, CUcontext from) {
    CUresult result = gf_context_synchronize(to);
    return result == CUDA_SUCCESS && to != from ? gf_context_synchronize(from) : result;
}

CUresult gf_copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                         size_t size, CUstream stream, bool behind) {
    /* between devices any such copy is waited for */
    bool one_device = gf_context_device((uint64_t)to_context) == gf_context_device((uint64_t)from_context);
    bool waits = !behind && one_device && is_foreign(to_context, from_context);
    CUresult result = check_peers(to_context, from_context);
    if (result == CUDA_SUCCESS && waits) {
        result = settle(to_context, from_context);
    }
    result = result != CUDA_SUCCESS ? result : gf_copy_on_device(to, from, size, stream, behind);
    return result == CUDA_SUCCESS && waits ? gf_cuStreamSynchronize(stream) : result;
}

CUresult gf_copy_staged(const struct gf_row_copy *c, uint64_t stream) {
    struct gf_side to = {c->to_device, c->to, c->to_pitch}, from = {c->from_device, c->from, c->from_pitch};
    struct gf_extent extent = {c->width, c->rows};
    struct gf_side *own = c->to_device ? &from : &to;
    struct gf_shared found;
    join_rows(&to, &from, &extent);
    if (gf_shared_find(own->address, &found)) { /* since the graph was made, perhaps by a kernel of its own */
        own->device = true;
        gf_window_work_enqueued();
        return copy_within(&to, &from, &extent, stream);
    }
    if (!c->to_device) {
        return copy_out_behind(&to, &from, &extent, stream);
    }
    /* What a graph reads is read when the graph is there, whatever memory it is. */
    if (gf_host_calls_pending() || gf_words_are_awaited() || is_of_others(from.address)) {
        gf_window_copy_enqueued();
        return copy_in_late(&to, &from, &extent, stream, false);
    }
    return copy_in(&to, &from, &extent, stream, true);
}

CUresult gf_copy_in_call(const struct gf_row_copy *c, uint64_t ticket) {
    struct gf_side to = {c->to_device, c->to, c->to_pitch}, from = {c->from_device, c->from, c->from_pitch};
    struct gf_extent extent = {c->width, c->rows};
    join_rows(&to, &from, &extent);
    return c->to_device ? send_pieces(GF_OP_sessionHostCopyIn, &to, &from, &extent, ticket)
                        : fetch_pieces(&to, &from, &extent, ticket);
}

static CUresult copy_slice(void *copying, const struct gf_row_copy *c) {
    struct gf_side to = {c->to_device, c->to, c->to_pitch}, from = {c->from_device, c->from, c->from_pitch};
    return copy_rows(to, from, (struct gf_extent){c->width, c->rows}, copying);
}

static CUresult look_at_slice(void *data, const struct gf_row_copy *c) {
    struct gf_side to = {c->to_device, c->to, c->to_pitch}, from = {c->from_device, c->from, c->from_pitch};
    bool shared;
    (void)data;
    return look(&to, &from, &(struct gf_extent){c->width, c->rows}, &shared);
}

static bool is_memory_type(CUmemorytype type) {
    return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
}

CUresult gf_copy_volume(const CUDA_MEMCPY3D *p, CUstream stream, bool behind) {
    bool some = p->WidthInBytes > 0 && p->Height > 0 && p->Depth > 0;
    CUresult result;
    if (p->srcLOD != 0 || p->dstLOD != 0 ||
        (some && (!is_memory_type(p->srcMemoryType) || !is_memory_type(p->dstMemoryType)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (some && gf_capture_any() && gf_capture_takes(stream, GF_FORM_MEMCPY, p, &result)) {
        return result;
    }
    if (some && (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY)) {
        const struct gf_volume source = gf_copy_source(p), target = gf_copy_target(p);
        return gf_copy_boxes(&target, &source, p, stream, behind);
    }
    if (!some) {
        uint64_t wire;
        return gf_wire_stream(stream, &wire);
    }
    struct copying copying = {.handle = stream, .may_run_behind = behind};
    if ((result = begin(&copying)) != CUDA_SUCCESS) {
        return result;
    }
    /* Nothing is copied of what cannot be copied as a whole. */
    result = p->Depth > 1 ? gf_copy_each(p, look_at_slice, NULL) : CUDA_SUCCESS;
    return end(&copying, result == CUDA_SUCCESS ? gf_copy_each(p, copy_slice, &copying) : result);
}

CUresult gf_copy_plane(const CUDA_MEMCPY2D *p, CUstream stream, bool behind) {
    const CUDA_MEMCPY3D volume = gf_volume_of_rows(p);
    return gf_copy_volume(&volume, stream, behind);
}

CUresult gf_copy_volume_between(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool behind) {
    if (p->srcLOD != 0 || p->dstLOD != 0) {
        return CUDA_ERROR_INVALID_VALUE; /* before the contexts are looked at */
    }
    const CUDA_MEMCPY3D volume = gf_volume_between(p);
    bool waits = !behind && is_foreign(p->dstContext, p->srcContext);
    CUresult result = check_peers(p->dstContext, p->srcContext);
    if (result == CUDA_SUCCESS && waits) {
        result = settle(p->dstContext, p->srcContext);
    }
    result = result != CUDA_SUCCESS ? result : gf_copy_volume(&volume, stream, behind);
    return result == CUDA_SUCCESS && waits ? gf_cuStreamSynchronize(stream) : result;
}
