#include "calls.h"
#include "channel.h"
#include "copy.h"
#include "gpuferry/messages.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

CUresult gf_fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width,
                 size_t rows, CUstream cuda_stream) {
    struct gf_req_sessionFill request = {
        .address = address, .pitch = pitch, .width = width, .rows = rows, .value = value, .element = element};
    CUresult result = gf_wire_stream(cuda_stream, &request.stream);
    uint64_t bytes, span;
    if (result != CUDA_SUCCESS || width == 0 || rows == 0) {
        return result;
    }
    if (__builtin_mul_overflow(width, element, &bytes) ||
        (rows > 1 && (pitch < bytes || pitch % element != 0)) || address % element != 0 ||
        __builtin_mul_overflow(pitch, rows - 1, &span) || __builtin_add_overflow(span, bytes, &span) ||
        !gf_device_range(address, span, true)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct gf_shared shared;
    if (!gf_shared_find(address, &shared)) {
        gf_window_copy_enqueued();
        return gf_send_struct(GF_OP_sessionFill, &request);
    }
    gf_window_work_enqueued();
    result = gf_send_struct(GF_OP_sessionFill, &request);
    return result == CUDA_SUCCESS ? gf_wait_for_stream(request.stream) : result;
}
