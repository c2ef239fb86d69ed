#include "word.h"

#include <stdatomic.h>

#include "copy.h"

static _Atomic bool awaited;

void gf_word_note(CUstreamBatchMemOpType operation) {
    if (operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
        atomic_store_explicit(&awaited, true, memory_order_relaxed);
    }
}

bool gf_words_are_awaited(void) {
    return atomic_load_explicit(&awaited, memory_order_relaxed);
}

CUresult gf_word_check(const CUstreamBatchMemOpParams *one) {
    bool wide =
        one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    unsigned size = wide ? 8 : 4, known = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    bool writes = true;
    switch ((int)one->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        writes = false;
        known = 3;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        break;
    case CU_STREAM_MEM_OP_BARRIER: /* operations of a stream see each other's effects anyway */
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool fine = (one->waitValue.flags & ~known) == 0 && one->waitValue.address % size == 0 &&
                gf_device_range(one->waitValue.address, size, writes);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
