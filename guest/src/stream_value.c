/* Operations on words of memory, several at a time. */
#include "functions.h"
#include "guest.h"

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
    case CU_STREAM_MEM_OP_BARRIER: /* operations of a stream see each other's effects anyway */
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult gf_cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *paramArray,
                                  unsigned flags) {
    if (paramArray == NULL || count > 256 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = do_one(stream, &paramArray[i]);
    }
    return result;
}
