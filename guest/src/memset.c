#include "calls.h"
#include "channel.h"
#include "copy.h"
#include "gpuferry/messages.h"
#include "stream.h"
#include "window.h"

CUresult gf_fill_check(CUdeviceptr address, size_t pitch, uint32_t element, size_t width, size_t rows) {
    uint64_t bytes, span;
    bool refused = __builtin_mul_overflow(width, element, &bytes) ||
                   (rows > 1 && (pitch < bytes || pitch % element != 0)) || address % element != 0 ||
                   __builtin_mul_overflow(pitch, rows - 1, &span) ||
                   __builtin_add_overflow(span, bytes, &span) || !gf_device_range(address, span, true);
    return refused ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult gf_fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width,
                 size_t rows, CUstream cuda_stream) {
    struct gf_req_sessionFill request = {
        .address = address, .pitch = pitch, .width = width, .rows = rows, .value = value, .element = element};
    CUresult result = gf_wire_stream(cuda_stream, &request.stream);
    if (result != CUDA_SUCCESS || width == 0 || rows == 0) {
        return result;
    }
    result = gf_fill_check(address, pitch, element, width, rows);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    gf_window_work_enqueued();
    return gf_send_struct(GF_OP_sessionFill, &request);
}
