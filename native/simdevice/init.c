/* cuInit, and what a fork does to it. */
#include "config.h"
#include "device.h"
#include "log.h"
#include <pthread.h>

enum { STATE_NEW, STATE_READY, STATE_FORKED };
static _Atomic int state = STATE_NEW;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

/* Worker threads and their locks do not survive a fork, so the child of an initialised process has no driver.
 */
static void after_fork_in_child(void) {
    if (atomic_load(&state) == STATE_READY)
        atomic_store(&state, STATE_FORKED);
}

static __thread bool in_host_function;

void sim_host_function(bool entered) {
    in_host_function = entered;
}

CUresult sim_enter(void) {
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    return atomic_load_explicit(&state, memory_order_acquire) == STATE_READY ? CUDA_SUCCESS
                                                                             : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuInit(unsigned int flags) {
    SIM_REQUIRE(flags == 0);
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != STATE_NEW)
        return now == STATE_READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    const struct sim_config *config = sim_config_get();
    if (config->error != CUDA_SUCCESS)
        return config->error;
    if (config->visible_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&init_lock);
    if (atomic_load(&state) == STATE_NEW) {
        result = sim_devices_start();
        if (result == CUDA_SUCCESS) {
            pthread_atfork(NULL, NULL, after_fork_in_child);
            atomic_store_explicit(&state, STATE_READY, memory_order_release);
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
