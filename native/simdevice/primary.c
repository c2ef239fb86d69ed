/* Primary contexts. */
#define _GNU_SOURCE
#include "context.h"
#include "driver_interop/interop.h"

/* Held while one begins or ends: who retains it has the one that goes on, or the next. Recursive, for what
 * the runtime keeps in it makes driver calls when that goes. */
static pthread_mutex_t life = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static CUresult find(CUdevice ordinal, struct sim_context **primary) {
    SIM_TRY(sim_enter());
    struct sim_device *device = sim_device_at(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *primary = device->primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    SIM_REQUIRE(out);
    pthread_mutex_lock(&life);
    CUresult result = atomic_load(&primary->active) ? CUDA_SUCCESS : sim_context_error(primary);
    if (result == CUDA_SUCCESS) {
        primary->retained++;
        sim_context_set_active(primary, true);
    }
    pthread_mutex_unlock(&life);
    SIM_TRY(result);
    *out = SIM_POINTER(CUcontext, primary);
    return CUDA_SUCCESS;
}

/* What the runtime keeps there goes before the lock is taken: another thread may hold a lock of the runtime's
 * and wait for this one. If another one has retained the context meanwhile, it stays. */
static void tear_down(struct sim_context *primary, bool only_unheld) {
    gf_context_storage_drop(SIM_POINTER(CUcontext, primary));
    pthread_mutex_lock(&life);
    if (atomic_load(&primary->active) && !(only_unheld && primary->retained > 0))
        sim_context_tear_down(primary);
    pthread_mutex_unlock(&life);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    pthread_mutex_lock(&life);
    bool held = primary->retained > 0;
    bool last = held && --primary->retained == 0;
    pthread_mutex_unlock(&life);
    if (last)
        tear_down(primary, true);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    if (!atomic_load(&primary->active))
        return CUDA_SUCCESS;
    atomic_store(&primary->flags, CU_CTX_SCHED_AUTO);
    tear_down(primary, false); /* those who retain it do so again, or release it all the same */
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    SIM_REQUIRE(sim_context_flags_valid(flags));
    atomic_store(&primary->flags, flags);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    SIM_REQUIRE(flags && active);
    *flags = atomic_load(&primary->flags);
    *active = atomic_load(&primary->active);
    return CUDA_SUCCESS;
}
