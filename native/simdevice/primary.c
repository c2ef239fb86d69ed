/* Primary contexts. */
#include "context.h"

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
    pthread_mutex_lock(&primary->lock);
    primary->retained++;
    sim_context_set_active(primary, true);
    pthread_mutex_unlock(&primary->lock);
    *out = SIM_POINTER(CUcontext, primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    pthread_mutex_lock(&primary->lock);
    bool held = primary->retained > 0;
    bool last = held && --primary->retained == 0;
    pthread_mutex_unlock(&primary->lock);
    if (last)
        sim_context_tear_down(primary);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    struct sim_context *primary;
    SIM_TRY(find(ordinal, &primary));
    if (!atomic_load(&primary->active))
        return CUDA_SUCCESS;
    sim_context_tear_down(primary); /* those who retain it do so again, or release it all the same */
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
