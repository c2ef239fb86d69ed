/* Functions of the program that a stream is given; while it is captured they are nodes of its graph. */
#include "calls.h"
#include "capture.h"
#include "host_call.h"
#include "stream.h"

CUresult gf_host_function(CUstream stream, CUhostFn function, void *data, unsigned sync_mode) {
    (void)sync_mode; /* how the driver may wait, which the program cannot tell */
    const CUDA_HOST_NODE_PARAMS node = {.fn = function, .userData = data};
    uint64_t wire;
    CUresult result = gf_usable_stream(stream, &wire);
    if (result != CUDA_SUCCESS ||
        (gf_capture_any() && gf_capture_takes(stream, GF_FORM_HOST, &node, &result))) {
        return result;
    }
    return gf_host_call_function(wire, function, data);
}

CUresult gf_host_callback(CUstream standard, CUstream stream, CUstreamCallback callback, void *data,
                          unsigned flags) {
    (void)flags;
    uint64_t wire;
    CUresult result = gf_usable_stream(stream == NULL ? standard : stream, &wire);
    return result == CUDA_SUCCESS ? gf_host_call_callback(wire, stream, callback, data) : result;
}
