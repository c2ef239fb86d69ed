#include "channel.h"
#include "copy.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "stream.h"
#include "window.h"

static CUresult fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width,
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
        !gf_device_range(address, span)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_window_work_enqueued();
    return gf_send_struct(GF_OP_sessionFill, &request);
}

CUresult gf_cuMemsetD8_v2(CUstream stream, CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return fill(dstDevice, 0, uc, 1, N, 1, stream);
}

CUresult gf_cuMemsetD16_v2(CUstream stream, CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return fill(dstDevice, 0, us, 2, N, 1, stream);
}

CUresult gf_cuMemsetD32_v2(CUstream stream, CUdeviceptr dstDevice, unsigned ui, size_t N) {
    return fill(dstDevice, 0, ui, 4, N, 1, stream);
}

CUresult gf_cuMemsetD2D8_v2(CUstream stream, CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                            size_t Width, size_t Height) {
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, stream);
}

CUresult gf_cuMemsetD2D16_v2(CUstream stream, CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                             size_t Width, size_t Height) {
    return fill(dstDevice, dstPitch, us, 2, Width, Height, stream);
}

CUresult gf_cuMemsetD2D32_v2(CUstream stream, CUdeviceptr dstDevice, size_t dstPitch, unsigned ui,
                             size_t Width, size_t Height) {
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, stream);
}

CUresult gf_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, uc, 1, N, 1, hStream);
}

CUresult gf_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult gf_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned ui, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult gf_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                              size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult gf_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                               size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

CUresult gf_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned ui, size_t Width,
                               size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}
