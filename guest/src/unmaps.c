#include "unmaps.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "channel.h"
#include "gpuferry/messages.h"
#include "host_call.h"
#include "operations.h"
#include "word.h"

static _Atomic bool under_way; /* maybe: since that was last waited for */

void gf_unmaps_note(void) {
    atomic_store_explicit(&under_way, true, memory_order_relaxed);
}

void gf_unmaps_await(void) {
    if (atomic_exchange(&under_way, false) && gf_operation_agreed(GF_OP_sessionMemoryReturned)) {
        bool alone = !gf_host_calls_pending() && !gf_words_are_awaited();
        struct gf_req_sessionMemoryReturned request = {.behind_work = alone};
        if (gf_call_making(GF_OP_sessionMemoryReturned, &request, sizeof request, NULL, 0) ==
            CUDA_ERROR_NOT_READY) {
            gf_unmaps_note();
        }
    }
}
