#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "gpuferry/operations.h"
#include "operations.h"

static void tell(unsigned function) {
    uint64_t calls = atomic_exchange(&gf_function_untold[function], 0);
    if (calls == 0 || !gf_operations_counted(gf_functions[function].id)) {
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
static void count(uint16_t function, uint64_t before) {
    atomic_fetch_add_explicit(&gf_function_untold[function], 1, memory_order_relaxed);
    if ((before & (before + 1)) == 0 && connected()) {
        tell(function);
    }
}

CUresult gf_unsupported(uint16_t function) {
    gf_enter(function);
    return gf_leave(function, CUDA_ERROR_NOT_SUPPORTED);
}

void gf_unsupported_tell(uint16_t function) {
    const struct gf_function *asked = &gf_functions[function];
    if (asked->quiet || atomic_load(&gf_function_lacks[function]) != GF_LACKS_NOTHING) {
        return;
    }
    uint64_t before = atomic_fetch_add_explicit(&gf_function_refusals[function], 1, memory_order_relaxed);
    if (before == 0 && asked->why != NULL) {
        gf_error("%s is not supported: %s", asked->name, asked->why);
    } else if (before == 0) {
        gf_error("%s: what it was asked for is not supported", asked->name);
    }
    if (asked->why != NULL) {
        count(function, before);
    }
}

CUresult gf_unsupported_here(uint16_t function) {
    uint8_t untold = GF_LACKS_UNTOLD;
    if (atomic_compare_exchange_strong(&gf_function_lacks[function], &untold, GF_LACKS_TOLD)) {
        gf_error(
            "%s is not supported: this program's libcuda.so.1 is of %s, the GPU server of %s. Where both "
            "are of one version it may be.",
            gf_functions[function].name, GF_VERSION_TEXT, gf_operations_server_version());
    }
    count(function, atomic_load_explicit(&gf_function_calls[function], memory_order_relaxed) - 1);
    return CUDA_ERROR_NOT_SUPPORTED;
}

void gf_unsupported_tell_all(void) {
    for (unsigned i = 0; connected() && i < gf_function_count; i++) {
        tell(i);
    }
}
