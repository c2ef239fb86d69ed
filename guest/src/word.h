/* Operations on words of memory, which streams write and wait for. */
#pragma once
#include <stdbool.h>

#include "driver_interop/cuda_driver.h"

#define GF_BATCH_MAX 256u /* operations in one call or node */

/* What CUDA refuses of one, before it is in a stream or a graph. */
CUresult gf_word_check(const CUstreamBatchMemOpParams *operation);
/* One that was fine is about to be in a stream or a graph. */
void gf_word_note(CUstreamBatchMemOpType operation);
/* Whether a stream may wait for a word, which the program may write when it has written what is copied behind
 * it: page-locked memory is copied when the stream is there, and not before. */
bool gf_words_are_awaited(void);
