/* cuProfiler*: no tool is ever attached, so there is nothing to start. */
#include "context.h"

CUresult cuProfilerStart(void) {
    struct sim_context *context;
    return sim_context_current(&context);
}

CUresult cuProfilerStop(void) {
    return cuProfilerStart();
}

CUresult cuProfilerInitialize(const char *config, const char *output, CUoutput_mode mode) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(config && output && (unsigned)mode <= CU_OUT_CSV);
    return cuProfilerStart();
}
