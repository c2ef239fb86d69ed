#define _GNU_SOURCE
#include "simdevice_implicit.h"
#include "capture.h"
#include "graph.h"
#include "memory.h"
#include "stream.h"
#include "vmm.h"
#include <string.h>
#include <sys/mman.h>

#define DISCARD_LEAST (1u << 20) /* zeroing this much gives the pages back instead of touching them */

struct fill_op {
    struct sim_op op;
    uint64_t address, pitch, width, height; /* width in elements */
    uint32_t value;
    uint32_t element; /* bytes */
    enum sim_range_kind kind;
    bool nowhere; /* no memory is there: a node may have such an address as long as it does not run */
};

static void fill(uint64_t address, uint32_t value, uint32_t element, uint64_t count) {
    switch (element) {
    case 1:
        memset((void *)address, (int)value, count);
        break;
    case 2:
        for (uint16_t *at = (uint16_t *)address, *end = at + count; at < end; at++)
            *at = (uint16_t)value;
        break;
    default:
        for (uint32_t *at = (uint32_t *)address, *end = at + count; at < end; at++)
            *at = value;
    }
}

static void fill_rows(const void *what) {
    const struct fill_op *f = what;
    for (uint64_t y = 0; y < f->height; y++)
        fill(f->address + y * f->pitch, f->value, f->element, f->width);
}

/* Zeroes whole pages by releasing them, where that can be done. */
static bool discard(enum sim_range_kind kind, uint64_t from, uint64_t to) {
    if (kind == SIM_RANGE_HOST || kind == SIM_RANGE_REGISTERED)
        return false;
    struct sim_range range;
    if (kind == SIM_RANGE_MAPPED || (sim_ranges_find(&sim_memory, from, &range) && range.file))
        return sim_vmm_discard(from, to - from);
    return madvise((void *)from, to - from, MADV_DONTNEED) == 0;
}

static CUresult run(struct sim_op *op) {
    const struct fill_op *f = (struct fill_op *)op;
    if (f->nowhere)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t bytes = f->width * f->element, end = f->address + bytes;
    uint64_t first = sim_round_up(f->address, SIM_PAGE), last = end / SIM_PAGE * SIM_PAGE;
    if (f->height == 1 && f->value == 0 && bytes >= DISCARD_LEAST && discard(f->kind, first, last)) {
        memset((void *)f->address, 0, first - f->address);
        memset((void *)last, 0, end - last);
        return CUDA_SUCCESS;
    }
    if (f->height == 1 && f->kind != SIM_RANGE_HOST && f->kind != SIM_RANGE_REGISTERED)
        sim_pages_expect(f->address, bytes);
    return sim_faults_catch(fill_rows, f) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void describe(const struct sim_op *op, struct sim_node_work *work) {
    const struct fill_op *f = (const struct fill_op *)op;
    work->params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    work->params.memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = f->address,
                                                       .pitch = f->pitch,
                                                       .value = f->value,
                                                       .elementSize = f->element,
                                                       .width = f->width,
                                                       .height = f->height};
}

static const struct sim_op_class fill_class = {.run = SIM_WORK(run), .describe = describe};

/* *op is NULL if there is nothing to fill. */
static CUresult prepare(uint64_t address, size_t pitch, uint32_t value, uint32_t element, size_t width,
                        size_t height, struct sim_span *span, struct fill_op **op) {
    uint64_t row, size;
    *op = NULL;
    SIM_REQUIRE(address % element == 0 && !__builtin_mul_overflow(width, (uint64_t)element, &row));
    SIM_REQUIRE(height <= 1 || (pitch % element == 0 && pitch >= row));
    SIM_REQUIRE(height == 0 || !__builtin_mul_overflow((uint64_t)(height - 1), (uint64_t)pitch, &size));
    if (!width || !height)
        return CUDA_SUCCESS;
    size += row;
    SIM_REQUIRE(size >= row);
    bool nowhere = address && sim_span_require(address, 1, span) != CUDA_SUCCESS;
    if (nowhere)
        *span = (struct sim_span){0};
    else
        SIM_TRY(sim_span_require(address, size, span));
    SIM_REQUIRE(!span->read_only);
    *op = sim_op_new(sizeof **op, &fill_class);
    if (!*op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    **op = (struct fill_op){(*op)->op, address, pitch, width, height, value, element, span->kind, nowhere};
    (*op)->op.reaches = nowhere ? 0 : sim_device_bit(span->device);
    return CUDA_SUCCESS;
}

CUresult sim_memset_op(const CUDA_MEMSET_NODE_PARAMS_v2 *p, struct sim_op **out) {
    struct sim_span span;
    struct fill_op *op;
    SIM_REQUIRE(p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4);
    SIM_REQUIRE(p->width && p->height);
    SIM_TRY(prepare(p->dst, p->height > 1 ? p->pitch : 0, p->value, p->elementSize, p->width, p->height,
                    &span, &op));
    *out = &op->op;
    return CUDA_SUCCESS;
}

static CUresult set(CUstream handle, uint64_t address, size_t pitch, uint32_t value, uint32_t element,
                    size_t width, size_t height, bool synchronous) {
    struct sim_stream *stream;
    struct sim_span span;
    struct fill_op *op;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    CUresult result = prepare(address, pitch, value, element, width, height, &span, &op);
    if (op && op->nowhere && !sim_stream_captured(stream)) {
        sim_op_discard(&op->op);
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (result == CUDA_SUCCESS && op) {
        bool always = (atomic_load(&stream->context->flags) & CU_CTX_SYNC_MEMOPS) != 0;
        bool wait =
            synchronous && (span.sync_memops || span.host || span.kind == SIM_RANGE_MANAGED || always);
        if (wait)
            result = sim_submit_and_wait(stream, &op->op);
        else
            result = sim_submit_and_forget(stream, &op->op);
    }
    sim_release(stream);
    return result;
}

CUresult sim_cuMemsetD8_v2(CUstream stream, CUdeviceptr to, unsigned char value, size_t count) {
    return set(stream, to, 0, value, 1, count, 1, true);
}

CUresult sim_cuMemsetD16_v2(CUstream stream, CUdeviceptr to, unsigned short value, size_t count) {
    return set(stream, to, 0, value, 2, count, 1, true);
}

CUresult sim_cuMemsetD32_v2(CUstream stream, CUdeviceptr to, unsigned int value, size_t count) {
    return set(stream, to, 0, value, 4, count, 1, true);
}

CUresult sim_cuMemsetD2D8_v2(CUstream stream, CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                             size_t height) {
    return set(stream, to, pitch, value, 1, width, height, true);
}

CUresult sim_cuMemsetD2D16_v2(CUstream stream, CUdeviceptr to, size_t pitch, unsigned short value,
                              size_t width, size_t height) {
    return set(stream, to, pitch, value, 2, width, height, true);
}

CUresult sim_cuMemsetD2D32_v2(CUstream stream, CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                              size_t height) {
    return set(stream, to, pitch, value, 4, width, height, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return set(stream, to, 0, value, 1, count, 1, false);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    return set(stream, to, 0, value, 2, count, 1, false);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
    return set(stream, to, 0, value, 4, count, 1, false);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
    return set(stream, to, pitch, value, 1, width, height, false);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
    return set(stream, to, pitch, value, 2, width, height, false);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) {
    return set(stream, to, pitch, value, 4, width, height, false);
}
