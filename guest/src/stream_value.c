/* Operations on words of memory that streams wait for and write. */
#include "capture.h"
#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "guest.h"
#include "host_call.h"
#include "stream.h"
#include "unmaps.h"
#include "window.h"
#include "word.h"

/* Whether the operation became a node of its stream's graph, or must not be made. */
static bool captured(CUstream stream, CUstreamBatchMemOpParams *operations, unsigned count,
                     CUresult *result) {
    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 node = {.count = count, .paramArray = operations};
    return gf_capture_any() && gf_capture_takes(stream, GF_FORM_BATCH, &node, result);
}

static void note_wait(CUstreamBatchMemOpType operation) {
    if (operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
        gf_unmaps_await_for_word(!gf_host_calls_pending());
    }
    gf_window_stream_may_wait();
    gf_word_note(operation);
}

#define SEND(function, operation_, value_type, member)                                                       \
    CUresult gf_##function##_send(CUstream stream, CUdeviceptr addr, value_type value, unsigned flags) {     \
        CUstreamBatchMemOpParams one = {                                                                     \
            .waitValue = {.operation = operation_, .address = addr, .member = value, .flags = flags}};       \
        struct gf_req_##function request = {.addr = addr, .value = value, .flags = flags};                   \
        note_wait(operation_);                                                                               \
        CUresult result = gf_wire_stream(stream, &request.stream);                                           \
        return result != CUDA_SUCCESS || captured(stream, &one, 1, &result)                                  \
                   ? result                                                                                  \
                   : gf_send_struct(GF_OP_##function, &request);                                             \
    }

SEND(cuStreamWaitValue32_v2, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t, value)
SEND(cuStreamWaitValue64_v2, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t, value64)
SEND(cuStreamWriteValue32_v2, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t, value)
SEND(cuStreamWriteValue64_v2, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t, value64)

static CUresult do_one(CUstream stream, const CUstreamBatchMemOpParams *one) {
    switch ((int)one->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return gf_cuStreamWaitValue32_v2(stream, one->waitValue.address, one->waitValue.value,
                                         one->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return gf_cuStreamWaitValue64_v2(stream, one->waitValue.address, one->waitValue.value64,
                                         one->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return gf_cuStreamWriteValue32_v2(stream, one->writeValue.address, one->writeValue.value,
                                          one->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return gf_cuStreamWriteValue64_v2(stream, one->writeValue.address, one->writeValue.value64,
                                          one->writeValue.flags);
    default:
        return CUDA_SUCCESS;
    }
}

CUresult gf_cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *paramArray,
                                  unsigned flags) {
    uint64_t wire;
    CUresult result = gf_wire_stream(stream, &wire);
    if (result == CUDA_SUCCESS && (paramArray == NULL || count > GF_BATCH_MAX || flags != 0)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = gf_word_check(&paramArray[i]);
    }
    if (result != CUDA_SUCCESS || count == 0 || captured(stream, paramArray, count, &result)) {
        return result;
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = do_one(stream, &paramArray[i]);
    }
    return result;
}
