#include "needs.h"
#include "context.h"

CUresult sim_may(enum sim_needs needs) {
    struct sim_context *context;
    switch (needs) {
    case SIM_NEEDS_NONE:
        break;
    case SIM_NEEDS_DRIVER:
        return sim_enter();
    case SIM_NEEDS_CONTEXT:
        return sim_context_current(&context);
    }
    return CUDA_SUCCESS;
}
