#include "guest.h"

#include "functions.h"

/* A state in which not every call works. */
CUresult gf_enter_slow(enum gf_needs needs) {
    CUresult error = gf_session_error();
    return atomic_load(&gf_session.state) == GF_READY && needs == GF_NEEDS_CONTEXT ? gf_context_check()
                                                                                   : error;
}

void gf_trace_result(uint16_t function, CUresult result) {
    const char *name = NULL;
    gf_cuGetErrorName(result, &name);
    gf_trace("%s: %s", gf_functions[function].name, name != NULL ? name : "an unknown result");
}
