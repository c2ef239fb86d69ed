#include "unmaps.h"

#include <stdatomic.h>

#include "channel.h"
#include "gpuferry/messages.h"
#include "operations.h"

static _Atomic bool words_awaited;
static _Atomic bool under_way; /* maybe: since that was last waited for */

void gf_unmaps_note(void) {
    atomic_store_explicit(&under_way, true, memory_order_relaxed);
}

void gf_unmaps_await(bool alone) {
    if (atomic_exchange(&under_way, false) && gf_operation_agreed(GF_OP_sessionMemoryReturned)) {
        struct gf_req_sessionMemoryReturned request = {.behind_work = alone && !atomic_load(&words_awaited)};
        if (gf_call_making(GF_OP_sessionMemoryReturned, &request, sizeof request, NULL, 0) ==
            CUDA_ERROR_NOT_READY) {
            gf_unmaps_note();
        }
    }
}

void gf_unmaps_await_for_word(bool alone) {
    gf_unmaps_await(alone);
    atomic_store(&words_awaited, true);
}
