#include "hooks.h"

#include "gpuferry/messages.h"

_Atomic bool gf_hooked;
const struct gf_sharing *_Atomic gf_sharing;
static void (*_Atomic callbacks[GF_MOMENTS])(void);

void gf_hook_set(enum gf_moment moment, void (*callback)(void)) {
    atomic_store(&callbacks[moment], callback);
    atomic_store(&gf_hooked, true);
}

void gf_hook_run(enum gf_moment moment) {
    void (*callback)(void) = atomic_load(&callbacks[moment]);
    if (callback != NULL) {
        callback();
    }
}

static bool waits(uint16_t op) {
    return op == GF_OP_cuCtxSynchronize || op == GF_OP_cuStreamSynchronize ||
           op == GF_OP_cuEventSynchronize || op == GF_OP_cuStreamQuery || op == GF_OP_cuEventQuery;
}

static bool ends_array(uint16_t op) {
    return op == GF_OP_cuArrayDestroy || op == GF_OP_cuMipmappedArrayDestroy;
}

/* For the device, in its dispatcher. */
static bool waits_in_server(uint16_t op) {
    return op == GF_OP_cuModuleUnload || op == GF_OP_cuLibraryUnload || ends_array(op) ||
           op == GF_OP_cuCtxSetLimit;
}

static bool is_queued(uint16_t op) {
    return op == GF_OP_sessionLaunch || op == GF_OP_sessionFill || op == GF_OP_sessionCopy ||
           op == GF_OP_sessionHostCall || op == GF_OP_sessionGraphLaunch ||
           op == GF_OP_cuEventRecordWithFlags || op == GF_OP_cuStreamWaitEvent;
}

void gf_hook_run_before(uint16_t op) {
    if (is_queued(op)) {
        gf_hook_run(GF_BEFORE_QUEUED);
    } else if (waits(op)) {
        gf_hook_run(GF_BEFORE_WAIT);
    } else if (waits_in_server(op)) {
        gf_hook_run(GF_BEFORE_END);
        if (ends_array(op)) {
            gf_hook_run(GF_BEFORE_ARRAY_END);
        }
    } else if (op == GF_OP_cuStreamWaitValue32_v2 || op == GF_OP_cuStreamWaitValue64_v2 ||
               op == GF_OP_cuStreamWriteValue32_v2 || op == GF_OP_cuStreamWriteValue64_v2) {
        gf_hook_run(GF_BEFORE_WORK);
    }
}

void gf_hook_run_after(uint16_t op, bool done) {
    if (waits(op)) {
        gf_hook_run(GF_AFTER_WAIT);
    }
    if (waits(op)) {
        gf_hook_run(done ? GF_DONE : GF_NOT_DONE);
    }
    if (op == GF_OP_cuCtxSynchronize && done) {
        gf_hook_run(GF_IDLE);
    }
}
