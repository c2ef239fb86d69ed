/* cuInit: the devices, each with its primary context and its default pool. */
#include "config.h"
#include "context.h"
#include "driver_interop/runtime_launch.h"
#include "enter.h"
#include "execute.h"
#include "log.h"
#include "pool.h"
#include "reach.h"
#include "skip.h"
#include "synchronized.h"
#include <pthread.h>

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult start(void) {
    if (!sim_check_kernels(sim_config_get()->check)) {
        sim_message(SIM_LOG_ERROR,
                    "GPUFERRY_SIM_CHECK: the process has memory of its own where device memory is "
                    "to be; limit its stack (ulimit -s 8192)");
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    sim_skip_code(sim_config_get()->skip_code);
    sim_output_limit(sim_config_get()->output_most);
    sim_devices_start();
    for (int i = 0; i < sim_device_count(); i++) {
        SIM_TRY(sim_context_create_primary(sim_device_at(i)));
        SIM_TRY(sim_pool_create_default(sim_device_at(i)));
    }
    sim_on_synchronized(sim_pools_settle);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
    gf_runtime_asks(false); /* its sweep of look-ups is over */
    SIM_REQUIRE(flags == 0);
    enum sim_state now = sim_state();
    if (now != SIM_STATE_NEW)
        return now == SIM_STATE_READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    const struct sim_config *config = sim_config_get();
    if (config->error != CUDA_SUCCESS)
        return config->error;
    if (config->visible_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&init_lock);
    if (sim_state() == SIM_STATE_NEW) {
        result = start();
        if (result == CUDA_SUCCESS) {
            sim_state_set_ready();
            sim_message(SIM_LOG_INFO, "%d device(s), compute capability %d.%d, %llu MiB each",
                        config->visible_count, config->cc_major, config->cc_minor,
                        (unsigned long long)(config->memory >> 20));
        }
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

CUresult cuDriverGetVersion(int *version) {
    SIM_REQUIRE(version);
    *version = sim_config_get()->driver_version;
    return CUDA_SUCCESS;
}
