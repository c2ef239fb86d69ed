#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"

static void tell(unsigned function) {
    uint64_t calls = atomic_exchange(&gf_function_untold[function], 0);
    if (calls == 0) {
        return;
    }
    struct gf_req_sessionUnsupported request = {
        .function = gf_functions[function].id,
        .calls = calls < UINT32_MAX ? (uint32_t)calls : UINT32_MAX,
    };
    /* In no context: this thread's may be gone, which is nothing that the program did wrong here. */
    uint32_t context = gf_thread.context_id;
    gf_thread.context_id = 0;
    gf_send_struct(GF_OP_sessionUnsupported, &request);
    gf_thread.context_id = context;
}

static bool connected(void) {
    return atomic_load_explicit(&gf_session.state, memory_order_relaxed) == GF_READY;
}

/* The server hears of the first call at once, of the others when they have doubled: a program that keeps
 * asking does not fill the channel with it. */
CUresult gf_unsupported(uint16_t function) {
    uint64_t before = atomic_fetch_add_explicit(&gf_function_calls[function], 1, memory_order_relaxed);
    if (before == 0) {
        gf_info("%s is not supported", gf_functions[function].name);
    }
    atomic_fetch_add_explicit(&gf_function_untold[function], 1, memory_order_relaxed);
    if ((before & (before + 1)) == 0 && connected()) {
        tell(function);
    }
    return gf_leave(function, CUDA_ERROR_NOT_SUPPORTED);
}

void gf_unsupported_tell_all(void) {
    for (unsigned i = 0; connected() && i < gf_function_count; i++) {
        tell(i);
    }
}
