#include "session.h"

struct gf_session gf_session;

CUresult gf_session_error(void) {
    switch (gf_session_state()) {
    case GF_FORKED:
    case GF_COLD:
        return CUDA_ERROR_NOT_INITIALIZED;
    case GF_CLOSED:
        return CUDA_ERROR_DEINITIALIZED;
    case GF_READY:
    case GF_LOST:
        break;
    }
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

void gf_session_lost(void) {
    enum gf_state ready = GF_READY;
    atomic_compare_exchange_strong(&gf_session.state, &ready, GF_LOST);
}
