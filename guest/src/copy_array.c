/* Copies with an array at one end or both: boxes of rows, a layer at a time (WIRE.md 8). */
#include <string.h>

#include "array.h"
#include "arrivals.h"
#include "calls.h"
#include "channel.h"
#include "context.h"
#include "copy.h"
#include "gpuferry/messages.h"
#include "guest.h"
#include "host_call.h"
#include "host_memory.h"
#include "pending.h"
#include "stream.h"
#include "vmm.h"
#include "window.h"

/* One side: a place in an array, or rows in memory. */
struct end {
    bool is_array;
    struct gf_place place;
    struct gf_copy_side memory;
};

/* From the first to the last. */
static uint64_t bytes_of(const struct gf_copy_side *memory, const CUDA_MEMCPY3D *size) {
    return (size->Depth - 1) * memory->slice + (size->Height - 1) * memory->pitch + size->WidthInBytes;
}

static CUresult find_end(const struct gf_volume *v, const CUDA_MEMCPY3D *size, bool write, struct end *end) {
    end->is_array = v->type == CU_MEMORYTYPE_ARRAY;
    if (end->is_array) {
        return gf_copy_place(v, size, &end->place);
    }
    CUresult result = gf_copy_side(v, size, write, &end->memory);
    if (result == CUDA_SUCCESS && !end->memory.device &&
        gf_copy_mirror(&end->memory.address, bytes_of(&end->memory, size))) {
        end->memory.device = end->memory.shared = true;
    }
    return result;
}

/* Rows of one layer, of which `from` and `to` say where they begin; without `arrivals` none is waited for. */
static CUresult copy_rows(const struct end *to, const struct end *from, uint64_t stream, uint64_t width,
                          uint64_t rows, struct gf_arrivals *arrivals) {
    if (to->is_array && from->is_array) {
        const struct gf_place *target = &to->place, *source = &from->place;
        struct gf_req_sessionArrayCopy request = {stream,    target->array, target->at, target->y,
                                                  target->z, source->array, source->at, source->y,
                                                  source->z, width,         rows};
        return gf_send_struct(GF_OP_sessionArrayCopy, &request);
    }
    const struct gf_place *array = to->is_array ? &to->place : &from->place;
    const struct gf_copy_side *memory = to->is_array ? &from->memory : &to->memory;
    if (memory->device) {
        struct gf_req_sessionArrayFrom request = {
            stream, array->array, array->at, array->y, array->z, memory->address, memory->pitch, width, rows};
        if (to->is_array) {
            return gf_send_struct(GF_OP_sessionArrayFrom, &request);
        }
        struct gf_req_sessionArrayTo back = {stream,          array->array,  array->at, array->y, array->z,
                                             memory->address, memory->pitch, width,     rows};
        return gf_send_struct(GF_OP_sessionArrayTo, &back);
    }
    struct gf_rows in_memory = {(char *)memory->address, memory->pitch, width, rows};
    if (to->is_array) {
        struct gf_req_sessionArrayIn request = {stream,   array->array, array->at, array->y,
                                                array->z, width,        rows};
        return gf_send_rows(GF_OP_sessionArrayIn, &request, sizeof request, &in_memory);
    }
    struct gf_req_sessionArrayOut request = {stream,   array->array, array->at, array->y,
                                             array->z, width,        rows};
    return arrivals == NULL
               ? gf_pending_start(GF_OP_sessionArrayOut, &request, sizeof request, &in_memory)
               : gf_arrival_start(arrivals, GF_OP_sessionArrayOut, &request, sizeof request, &in_memory);
}

static void step(struct end *end, uint64_t rows) {
    end->place.y += rows;
    end->memory.address += rows * end->memory.pitch;
}

static bool is_locked(const struct gf_copy_side *memory, const CUDA_MEMCPY3D *size) {
    return gf_host_is_locked((void *)memory->address, bytes_of(memory, size));
}

static CUdevice device_of(const struct end *end) {
    return end->is_array ? end->place.device : gf_mapping_device(end->memory.address);
}

static bool is_of_one_device(const struct end *end) {
    return end->is_array ||
           (end->memory.device && !end->memory.shared && gf_window_contains(end->memory.address));
}

static CUresult copy_layers(const struct gf_volume *target, const struct gf_volume *source,
                            const CUDA_MEMCPY3D *size, uint64_t stream, bool behind) {
    struct end to = {0}, from = {0};
    CUresult result = find_end(target, size, true, &to);
    result = result == CUDA_SUCCESS ? find_end(source, size, false, &from) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (gf_host_calls_pending() && (result = gf_wait_for_stream(stream)) != CUDA_SUCCESS) {
        return result; /* a function of the program may write what is copied */
    }
    bool across =
        !behind && is_of_one_device(&to) && is_of_one_device(&from) && device_of(&to) != device_of(&from);
    if (across && (result = gf_copy_across(device_of(&to), device_of(&from))) != CUDA_SUCCESS) {
        return result;
    }
    bool is_in = to.is_array && !from.is_array && !from.memory.device;
    bool waits = !behind && (across || (is_in && gf_copy_in_waits(stream)) || to.memory.shared ||
                             from.memory.shared || gf_context_is_synchronous());
    stream = is_in && behind ? gf_wire_behind(stream) : stream;
    bool is_out = !to.is_array && !to.memory.device;
    struct gf_arrivals arrivals = {0};
    bool awaited = !behind || !is_out || !is_locked(&to.memory, size);
    uint64_t most = GF_CHUNK / size->WidthInBytes;
    most = most > 0 ? most : 1;
    gf_window_work_enqueued();
    for (uint64_t z = 0; z < size->Depth && result == CUDA_SUCCESS; z++) {
        struct end at_to = to, at_from = from;
        for (uint64_t done = 0; done < size->Height && result == CUDA_SUCCESS;) {
            uint64_t left = size->Height - done, rows = left < most ? left : most;
            result =
                copy_rows(&at_to, &at_from, stream, size->WidthInBytes, rows, awaited ? &arrivals : NULL);
            step(&at_to, rows);
            step(&at_from, rows);
            done += rows;
        }
        to.place.z++;
        from.place.z++;
        to.memory.address += to.memory.slice;
        from.memory.address += from.memory.slice;
    }
    CUresult arrived = gf_arrivals_wait(&arrivals);
    result = result == CUDA_SUCCESS ? arrived : result;
    if (result == CUDA_SUCCESS && arrivals.started > 0) {
        gf_copied_out();
    }
    return result == CUDA_SUCCESS && waits ? gf_wait_for_stream(stream) : result;
}

CUresult gf_copy_boxes(const struct gf_volume *target, const struct gf_volume *source,
                       const CUDA_MEMCPY3D *size, CUstream cuda_stream, bool behind) {
    uint64_t stream;
    CUresult result = gf_wire_stream(cuda_stream, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint32_t before = gf_stream_enter(stream);
    result = copy_layers(target, source, size, stream, behind);
    gf_thread.context_id = before;
    return result;
}

CUresult gf_copy_line(const CUDA_MEMCPY3D *given, CUstream stream, bool behind) {
    const struct {
        CUmemorytype type;
        CUarray array;
        size_t offset;
    } sides[] = {{given->srcMemoryType, given->srcArray, given->srcXInBytes},
                 {given->dstMemoryType, given->dstArray, given->dstXInBytes}};
    bool whole = true;
    uint64_t other = 0;
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        if (sides[i].type != CU_MEMORYTYPE_ARRAY) {
            continue;
        }
        uint64_t wire, extents[3], texel;
        CUresult result = gf_array_look_up(sides[i].array, &wire, extents, &texel);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (gf_array_find(sides[i].array)->depth > 0 || (other != 0 && other != texel)) {
            return CUDA_ERROR_INVALID_VALUE; /* the texels of two arrays must be as large */
        }
        other = texel;
        whole = whole && (sides[i].offset % texel | given->WidthInBytes % texel) == 0;
    }
    if (!whole && given->WidthInBytes > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D line = *given;
    line.Height = line.Depth = 1;
    return gf_copy_volume(&line, stream, behind);
}

#define TO_ARRAY(array, offset)                                                                              \
    .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = (array), .dstXInBytes = (offset)
#define FROM_ARRAY(array, offset)                                                                            \
    .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (array), .srcXInBytes = (offset)
#define TO_HOST(memory)     .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = (memory)
#define FROM_HOST(memory)   .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = (memory)
#define TO_DEVICE(memory)   .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (memory)
#define FROM_DEVICE(memory) .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = (memory)

CUresult gf_copy_device_to_array(CUarray to, size_t offset, CUdeviceptr from, size_t size, CUstream stream) {
    return gf_copy_line(&(CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_DEVICE(from), .WidthInBytes = size},
                        stream, false);
}

CUresult gf_copy_array_to_device(CUdeviceptr to, CUarray from, size_t offset, size_t size, CUstream stream) {
    return gf_copy_line(&(CUDA_MEMCPY3D){TO_DEVICE(to), FROM_ARRAY(from, offset), .WidthInBytes = size},
                        stream, false);
}

CUresult gf_copy_host_to_array(CUarray to, size_t offset, const void *from, size_t size, CUstream stream,
                               bool behind) {
    return gf_copy_line(&(CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_HOST(from), .WidthInBytes = size}, stream,
                        behind);
}

CUresult gf_copy_array_to_host(void *to, CUarray from, size_t offset, size_t size, CUstream stream,
                               bool behind) {
    return gf_copy_line(&(CUDA_MEMCPY3D){TO_HOST(to), FROM_ARRAY(from, offset), .WidthInBytes = size}, stream,
                        behind);
}

CUresult gf_copy_array_to_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size,
                                CUstream stream) {
    return gf_copy_line(
        &(CUDA_MEMCPY3D){TO_ARRAY(to, to_offset), FROM_ARRAY(from, from_offset), .WidthInBytes = size},
        stream, false);
}
