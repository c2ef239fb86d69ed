/* Copies. Every one is a box of rows: a plain copy has one row. Each call checks its addresses, then hands
 * the box to `submit`, which decides whether the host waits ("API synchronization behavior" in CUDA's
 * manual). */
#include "addresses.h"
#include "driver_interop/volumes.h"
#include "variance.h"
#include "simdevice_implicit.h"
#include "array.h"
#include "capture.h"
#include "graph.h"
#include "memory.h"
#include "refused.h"
#include "stream.h"
#include <stdlib.h>
#include <string.h>

#define STAGED_MOST                                                                                          \
    (64u << 10) /* pageable memory up to this size is copied aside, so that the host need not wait */

struct plane {
    uint64_t address;
    uint64_t pitch, slice;   /* bytes from row to row and from layer to layer */
    struct sim_array *array; /* whose memory it is; the operation keeps it alive */
};

struct box {
    struct plane to, from;
    uint64_t width, height, depth;
};

struct copy_op {
    struct sim_op op;
    struct box box;
    void *staging;
    bool to_device;
    CUDA_MEMCPY3D as; /* it was asked for */
};

static void move(const void *what) {
    const struct box *box = what;
    for (uint64_t z = 0; z < box->depth; z++)
        for (uint64_t y = 0; y < box->height; y++)
            memmove((void *)(box->to.address + z * box->to.slice + y * box->to.pitch),
                    (const void *)(box->from.address + z * box->from.slice + y * box->from.pitch),
                    box->width);
}

static CUresult run(struct sim_op *op) {
    const struct box *box = &((struct copy_op *)op)->box;
    if (((struct copy_op *)op)->to_device && box->height == 1 && box->depth == 1)
        sim_pages_expect(box->to.address, box->width);
    return sim_faults_catch(move, box) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void drop(struct sim_op *op) {
    const struct copy_op *copy = (struct copy_op *)op;
    free(copy->staging);
    if (copy->box.to.array)
        sim_release(copy->box.to.array);
    if (copy->box.from.array)
        sim_release(copy->box.from.array);
}

static void describe(const struct sim_op *op, struct sim_node_work *work) {
    work->params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    work->params.memcpy.copyParams = ((const struct copy_op *)op)->as;
}

static const struct sim_op_class copy_class = {.run = SIM_WORK(run), .describe = describe, .drop = drop};
static const struct sim_op_class staged_class = {.run = SIM_WORK(run), .drop = drop};

static uint64_t extent(const struct plane *plane, const struct box *box) {
    return (box->depth - 1) * plane->slice + (box->height - 1) * plane->pitch + box->width;
}

static CUresult look(CUmemorytype type, const struct plane *plane, const struct box *box,
                     struct sim_span *span) {
    if (plane->array) {
        *span = (struct sim_span){.known = true, .device = plane->array->pixels->device};
        return CUDA_SUCCESS;
    }
    SIM_REQUIRE(plane->address);
    /* what lies among the device's addresses is the device's, allocated or not */
    if (type == CU_MEMORYTYPE_DEVICE ||
        (plane->address >= SIM_DEVICE_BEGIN && plane->address < SIM_DEVICE_END))
        return sim_span_require(plane->address, extent(plane, box), span);
    return sim_span_look(plane->address, extent(plane, box), span);
}

/* Copies the source rows aside, packed. */
static bool stage(struct copy_op *op) {
    struct box *box = &op->box;
    op->staging = malloc(box->width * box->height * box->depth);
    if (!op->staging)
        return false;
    struct copy_op aside = {.box = *box};
    aside.box.to = (struct plane){(uint64_t)op->staging, box->width, box->width * box->height, NULL};
    move(&aside.box);
    box->from = aside.box.to;
    return true;
}

static uint64_t reach(const struct sim_span *span) {
    return span->device ? sim_device_bit(span->device) : 0;
}

static bool is_on_device(const struct sim_span *span) {
    return span->known && !span->host;
}

/* The operation (NULL: there is nothing to copy), and what is known of the two sides. */
static CUresult prepare(const struct box *box, const CUDA_MEMCPY3D *as, struct sim_span *to,
                        struct sim_span *from, struct copy_op **op) {
    *op = NULL;
    if (!box->width || !box->height || !box->depth)
        return CUDA_SUCCESS;
    SIM_TRY(look(as->dstMemoryType, &box->to, box, to));
    SIM_TRY(look(as->srcMemoryType, &box->from, box, from));
    SIM_REQUIRE(!to->read_only);
    *op = sim_op_new(sizeof **op, &copy_class);
    if (!*op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*op)->box = *box;
    if (box->to.array)
        sim_retain(box->to.array);
    if (box->from.array)
        sim_retain(box->from.array);
    (*op)->op.reaches = reach(to) | reach(from);
    (*op)->to_device = is_on_device(to);
    (*op)->as = *as;
    return CUDA_SUCCESS;
}

/* Between memory of devices, which the host need not wait for, as it must for managed memory. */
static bool is_within(const struct sim_span *to, const struct sim_span *from) {
    bool managed = to->kind == SIM_RANGE_MANAGED || from->kind == SIM_RANGE_MANAGED;
    return is_on_device(to) && is_on_device(from) && !managed;
}

/* Between two devices: such a copy comes after all work of both, and before all that follows. */
static bool is_across(const struct sim_span *to, const struct sim_span *from) {
    return is_within(to, from) && to->device != from->device;
}

static CUresult settle(const struct sim_device *device) {
    sim_device_drain(device);
    return atomic_load(&device->error);
}

static CUresult submit_prepared(struct sim_stream *stream, struct copy_op *op, const struct sim_span *to,
                                const struct sim_span *from, bool synchronous) {
    const struct box *box = &op->box;
    bool always = (atomic_load(&stream->context->flags) & CU_CTX_SYNC_MEMOPS) != 0;
    bool wanted = always || to->sync_memops || from->sync_memops || is_across(to, from);
    bool wait = (synchronous && (!is_within(to, from) || wanted)) || !to->known;
    bool aside = !wait && !from->known;
    if (aside && (box->width * box->height * box->depth > STAGED_MOST || sim_draw(SIM_OPEN_ASIDE, 2))) {
        wait = true;
        aside = false;
    }
    if (aside) {
        op->op.class = &staged_class;
        if (!stage(op)) {
            sim_op_discard(&op->op);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return wait ? sim_submit_and_wait(stream, &op->op) : sim_submit_and_forget(stream, &op->op);
}

static CUresult submit(struct sim_stream *stream, const struct box *box, const CUDA_MEMCPY3D *as,
                       bool synchronous) {
    struct sim_span to, from;
    struct copy_op *op;
    SIM_TRY(prepare(box, as, &to, &from, &op));
    if (!op)
        return CUDA_SUCCESS;
    if (!synchronous && sim_stream_captured(stream)) /* the host's memory is read when the graph runs */
        return sim_submit_and_forget(stream, &op->op);
    CUresult refused = synchronous ? sim_capture_check_stream(stream) : CUDA_SUCCESS;
    if (synchronous && refused == CUDA_SUCCESS)
        refused = sim_capture_check_unsafe();
    if (refused == CUDA_SUCCESS && synchronous && is_across(&to, &from)) {
        refused = settle(to.device);
        refused = refused == CUDA_SUCCESS ? settle(from.device) : refused;
    }
    if (refused == CUDA_SUCCESS)
        return submit_prepared(stream, op, &to, &from, synchronous);
    sim_op_discard(&op->op);
    return refused;
}

static CUresult copy_box(CUstream handle, const struct box *box, const CUDA_MEMCPY3D *as, bool synchronous) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = submit(stream, box, as, synchronous);
    sim_release(stream);
    return result;
}

static CUresult copy(CUstream handle, CUmemorytype to_type, uint64_t to, CUmemorytype from_type,
                     uint64_t from, size_t size, bool synchronous) {
    const struct box box = {{to, 0, 0, NULL}, {from, 0, 0, NULL}, size, 1, 1};
    CUDA_MEMCPY3D as = {
        .srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = size, .Height = 1, .Depth = 1};
    if (from_type == CU_MEMORYTYPE_HOST)
        as.srcHost = (const void *)from;
    else
        as.srcDevice = from;
    if (to_type == CU_MEMORYTYPE_HOST)
        as.dstHost = (void *)to;
    else
        as.dstDevice = to;
    return copy_box(handle, &box, &as, synchronous);
}

CUresult sim_cuMemcpy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t size) {
    return copy(stream, CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from, size, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(stream, CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from, size, false);
}

CUresult sim_cuMemcpyHtoD_v2(CUstream stream, CUdeviceptr to, const void *from, size_t size) {
    return copy(stream, CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, (uint64_t)from, size, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    return copy(stream, CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, (uint64_t)from, size, false);
}

CUresult sim_cuMemcpyDtoH_v2(CUstream stream, void *to, CUdeviceptr from, size_t size) {
    return copy(stream, CU_MEMORYTYPE_HOST, (uint64_t)to, CU_MEMORYTYPE_DEVICE, from, size, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(stream, CU_MEMORYTYPE_HOST, (uint64_t)to, CU_MEMORYTYPE_DEVICE, from, size, false);
}

CUresult sim_cuMemcpyDtoD_v2(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t size) {
    return copy(stream, CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, size, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(stream, CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, size, false);
}

/* A peer copy comes after all work of both contexts, and before all that follows. */
static CUresult check_peers(CUcontext to, CUcontext from, bool wait) {
    SIM_TRY(sim_enter());
    const CUcontext handles[] = {to, from};
    for (size_t i = 0; i < SIM_COUNT(handles); i++) {
        struct sim_context *context = sim_context_of(handles[i]);
        if (!context)
            return CUDA_ERROR_INVALID_CONTEXT;
        SIM_TRY(sim_context_check(context));
        if (wait)
            sim_context_drain(context, NULL);
    }
    return CUDA_SUCCESS;
}

/* What other contexts are given from now on must find it done. */
static CUresult finish_between(CUcontext to, CUcontext from) {
    struct sim_context *current;
    SIM_TRY(sim_context_current(&current));
    if (sim_context_of(to) == current && sim_context_of(from) == current)
        return CUDA_SUCCESS;
    sim_context_drain(current, NULL);
    return sim_context_check(current);
}

CUresult sim_cuMemcpyPeer(CUstream stream, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t size) {
    SIM_TRY(check_peers(to_context, from_context, true));
    SIM_TRY(copy(stream, CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, size, true));
    return finish_between(to_context, from_context);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t size, CUstream stream) {
    SIM_TRY(check_peers(to_context, from_context, false));
    return copy(stream, CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, size, false);
}

/* One side of a 2-D or 3-D copy as the descriptors give it. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    uint64_t x, y, z, pitch, rows;
    CUarray array;
};

/* A box within an array, of which the plane gets a reference. A 1-D array of layers has its layers in z. */
static CUresult locate_in_array(const struct side *side, const struct box *box, struct plane *plane) {
    SIM_REQUIRE(side->array);
    struct sim_array *array = sim_acquire(SIM_HANDLE(side->array), SIM_ARRAY);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    plane->array = array;
    const struct sim_level *level = &array->level;
    uint64_t texel = (uint64_t)array->texel.bytes * array->texel.channels, row = level->width * texel;
    SIM_REQUIRE(side->x % texel == 0 && box->width % texel == 0);
    SIM_REQUIRE(side->x <= row && box->width <= row - side->x);
    SIM_REQUIRE(side->y <= level->height && box->height <= level->height - side->y);
    SIM_REQUIRE(side->z <= level->layers && box->depth <= level->layers - side->z);
    plane->pitch = level->pitch;
    plane->slice = level->slice;
    plane->address = level->address + side->z * level->slice + side->y * level->pitch + side->x;
    return CUDA_SUCCESS;
}

static CUresult locate(const struct side *side, const struct box *box, struct plane *plane) {
    uint64_t base;
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        base = (uint64_t)side->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = side->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return locate_in_array(side, box, plane);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t row, rows, layers, last;
    SIM_REQUIRE(!__builtin_add_overflow(side->x, box->width, &row));
    SIM_REQUIRE(!__builtin_add_overflow(side->y, box->height, &rows));
    SIM_REQUIRE(!__builtin_add_overflow(side->z, box->depth, &layers));
    bool one_slice = box->depth == 1 && !side->z, one_row = box->height == 1 && one_slice && !side->y;
    plane->pitch = !side->pitch && one_row ? row : side->pitch;
    SIM_REQUIRE(plane->pitch >= row && (side->rows ? side->rows >= rows : one_slice));
    rows = side->rows ? side->rows : rows;
    SIM_REQUIRE(!__builtin_mul_overflow(plane->pitch, rows, &plane->slice));
    SIM_REQUIRE(!__builtin_mul_overflow(plane->slice, layers, &last));
    SIM_REQUIRE(!__builtin_add_overflow(base, last, &last));
    SIM_REQUIRE(base || !box->width || !box->height || !box->depth);
    plane->address = base + side->z * plane->slice + side->y * plane->pitch + side->x;
    return CUDA_SUCCESS;
}

/* The box's two planes, with references to arrays that `let_go` drops, also after an error. */
static CUresult locate_sides(const CUDA_MEMCPY3D *c, struct box *box) {
    const struct side to = {c->dstMemoryType, c->dstHost,  c->dstDevice, c->dstXInBytes, c->dstY,
                            c->dstZ,          c->dstPitch, c->dstHeight, c->dstArray};
    const struct side from = {c->srcMemoryType, c->srcHost,  c->srcDevice, c->srcXInBytes, c->srcY,
                              c->srcZ,          c->srcPitch, c->srcHeight, c->srcArray};
    SIM_TRY(locate(&to, box, &box->to));
    return locate(&from, box, &box->from);
}

static void let_go(const struct box *box) {
    if (box->to.array)
        sim_release(box->to.array);
    if (box->from.array)
        sim_release(box->from.array);
}

static CUresult copy_volume(CUstream stream, const CUDA_MEMCPY3D *c, bool synchronous) {
    struct box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
    if (!box.width || !box.height || !box.depth)
        return sim_refuse_stream(stream); /* whatever else it says */
    CUresult result = locate_sides(c, &box);
    if (result == CUDA_SUCCESS)
        result = copy_box(stream, &box, c, synchronous);
    let_go(&box);
    return result;
}

static CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D *c, bool synchronous) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(c);
    const CUDA_MEMCPY3D volume = gf_volume_of_rows(c);
    return copy_volume(stream, &volume, synchronous);
}

static CUresult check_pitch(const CUDA_MEMCPY2D *c) {
    SIM_REQUIRE(c && c->srcPitch <= SIM_MAX_PITCH && c->dstPitch <= SIM_MAX_PITCH);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemcpy2D_v2(CUstream stream, const CUDA_MEMCPY2D *c) {
    SIM_TRY(check_pitch(c));
    return copy_2d(stream, c, true);
}

CUresult sim_cuMemcpy2DUnaligned_v2(CUstream stream, const CUDA_MEMCPY2D *c) {
    return copy_2d(stream, c, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
    SIM_TRY(check_pitch(c));
    return copy_2d(stream, c, false);
}

static CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D *c, bool synchronous) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(c && c->srcLOD == 0 && c->dstLOD == 0);
    return copy_volume(stream, c, synchronous);
}

CUresult sim_copy_op(const CUDA_MEMCPY3D *c, struct sim_op **out) {
    struct sim_span to, from;
    struct copy_op *op = NULL;
    SIM_REQUIRE(c->srcLOD == 0 && c->dstLOD == 0);
    SIM_REQUIRE(c->WidthInBytes && c->Height && c->Depth);
    struct box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
    CUresult result = locate_sides(c, &box);
    if (result == CUDA_SUCCESS)
        result = prepare(&box, c, &to, &from, &op);
    let_go(&box);
    *out = op ? &op->op : NULL;
    return result;
}

CUresult sim_cuMemcpy3D_v2(CUstream stream, const CUDA_MEMCPY3D *c) {
    return copy_3d(stream, c, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream) {
    return copy_3d(stream, c, false);
}

static CUresult copy_3d_peer(CUstream stream, const CUDA_MEMCPY3D_PEER *c, bool synchronous) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(c && c->srcLOD == 0 && c->dstLOD == 0);
    SIM_TRY(check_peers(c->dstContext, c->srcContext, synchronous));
    const CUDA_MEMCPY3D volume = gf_volume_between(c);
    return copy_volume(stream, &volume, synchronous);
}

CUresult sim_cuMemcpy3DPeer(CUstream stream, const CUDA_MEMCPY3D_PEER *c) {
    SIM_TRY(copy_3d_peer(stream, c, true));
    return finish_between(c->dstContext, c->srcContext);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream stream) {
    return copy_3d_peer(stream, c, false);
}
