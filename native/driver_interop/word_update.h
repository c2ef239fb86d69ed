/* What an executable graph may change of operations on words of memory, as cuda.h has it. */
#pragma once
#include <stdbool.h>

#include "cuda_driver.h"

/* Of its flags those that stay: of a wait whether remote writes are flushed, of others all. */
static inline unsigned word_fixed_flags(const CUstreamBatchMemOpParams *word) {
    switch ((int)word->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return word->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return word->writeValue.flags;
    default:
        return word->memoryBarrier.flags;
    }
}

static inline bool words_alike(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *before,
                               const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *after) {
    bool alike = before->count == after->count;
    for (unsigned i = 0; i < after->count && alike; i++) {
        const CUstreamBatchMemOpParams *b = &before->paramArray[i], *a = &after->paramArray[i];
        alike = b->operation == a->operation && word_fixed_flags(b) == word_fixed_flags(a);
    }
    return alike;
}
