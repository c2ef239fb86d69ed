#include "calls.h"
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "copy.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "host_memory.h"
#include "mirror.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

/* Where the device has page-locked memory: what was registered has a copy there. */
static CUdeviceptr on_device(CUdeviceptr address) {
    struct gf_host_range range;
    CUdeviceptr found = address;
    bool locked = gf_host_find(address, &range);
    return locked && gf_cuMemHostGetDevicePointer_v2(&found, (void *)address, 0) != CUDA_SUCCESS ? address
                                                                                                 : found;
}

/* The legacy stream is never captured: what it is to fill has to be there. */
static bool may_be_node(const struct gf_req_sessionFill *f) {
    CUresult (*check)(CUdeviceptr, size_t, uint32_t, size_t, size_t) =
        f->stream == 0 ? gf_fill_check : gf_fill_node_check;
    return check(f->address, f->pitch, f->element, f->width, f->rows) == CUDA_SUCCESS;
}

CUresult gf_fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width,
                 size_t rows, CUstream cuda_stream, bool behind) {
    struct gf_req_sessionFill request = {
        .address = address, .pitch = pitch, .width = width, .rows = rows, .value = value, .element = element};
    CUresult result = gf_usable_stream(cuda_stream, &request.stream);
    if (result == CUDA_SUCCESS && !gf_fill_fits(address, pitch, element, width, rows)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS || width == 0 || rows == 0) {
        return result;
    }
    address = on_device(address);
    request.address = address;
    const CUDA_MEMSET_NODE_PARAMS_v2 node = {address, pitch, value, element, width, rows, NULL};
    if (gf_capture_any() && may_be_node(&request) &&
        gf_capture_takes(cuda_stream, GF_FORM_MEMSET, &node, &result)) {
        return result;
    }
    result = gf_fill_check(address, pitch, element, width, rows);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_shared shared;
    struct gf_mirror mirror;
    bool seen = gf_shared_find(address, &shared) || gf_mirror_find(address, false, &mirror);
    if (seen) {
        gf_window_work_enqueued();
    } else {
        gf_window_copy_enqueued();
    }
    uint32_t before = gf_stream_enter(request.stream);
    result = gf_send_struct(GF_OP_sessionFill, &request);
    gf_thread.context_id = before;
    bool waits = !behind && (seen || gf_is_synchronous(address) || gf_context_is_synchronous());
    return result == CUDA_SUCCESS && waits ? gf_wait_for_stream(request.stream) : result;
}
