/* What the simulated libnvidia-ml.so.1 tells: the identity that the simulated driver reports, and the live
 * figures of all processes that use it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "live_file.h"
#include "live_read.h"
#include "nvml/nvml.h"

#define PERIOD_NS UINT64_C(100000000) /* shortest over which utilisation is measured */

_Static_assert((int)NV_DEVICES >= (int)SIM_MAX_DEVICES && (int)NV_PROCESSES >= (int)LIVE_PROCESSES,
               "all that there may be has a place");

struct nvmlDevice_st nv_handles[NV_DEVICES];

struct period {
    uint64_t since_ns, busy_ns; /* where the one under way began */
    int utilization;            /* of the last whole one, per cent */
};

static struct period periods[NV_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over them */
static _Atomic unsigned users;

nvmlReturn_t nv_begin(void) {
    if (sim_config_get()->error != CUDA_SUCCESS)
        return NVML_ERROR_UNKNOWN;
    if (sim_config_get()->device_count == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nv_end(void) {
    unsigned before = atomic_load(&users);
    do {
        if (before == 0)
            return NVML_ERROR_UNINITIALIZED;
    } while (!atomic_compare_exchange_weak(&users, &before, before - 1));
    return NVML_SUCCESS;
}

nvmlReturn_t nv_find_system(struct nv_system *system) {
    if (atomic_load(&users) == 0)
        return NVML_ERROR_UNINITIALIZED;
    *system = (struct nv_system){.device_count = (unsigned)sim_config_get()->device_count,
                                 .cuda_version = sim_config_get()->driver_version,
                                 .driver_version = SIM_VERSION};
    return NVML_SUCCESS;
}

static int utilization(int device) {
    pthread_mutex_lock(&lock);
    struct period *period = &periods[device];
    uint64_t now = live_now_ns(), busy = live_read_busy_ns(device);
    uint64_t elapsed = now - period->since_ns;
    if (elapsed >= PERIOD_NS) {
        /* a process that died in a kernel takes its part with it, so the sum can shrink */
        uint64_t more = busy > period->busy_ns ? busy - period->busy_ns : 0;
        bool first = period->since_ns == 0;
        int share = more < elapsed ? (int)((more * 100 + elapsed / 2) / elapsed) : 100;
        *period = (struct period){now, busy, first ? 0 : share};
    }
    int result = period->utilization;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whose handle it is. */
static nvmlReturn_t find(nvmlDevice_t handle, int *device) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    NV_REQUIRE(handle >= nv_handles && handle < nv_handles + system.device_count);
    *device = (int)(handle - nv_handles);
    return NVML_SUCCESS;
}

static nvmlReturn_t state_of(int device) {
    return live_read_lost(device) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nv_find_device(nvmlDevice_t handle, struct nv_device *found) {
    int device;
    NV_TRY(find(handle, &device));
    /* each process has limits of its own, so together they may hold more than there is */
    uint64_t total = sim_config_get()->memory, used = live_read_memory(device);
    *found = (struct nv_device){.index = (unsigned)device,
                                .name = SIM_DEVICE_NAME,
                                .memory_total = total,
                                .memory_used = used < total ? used : total,
                                .major = sim_config_get()->cc_major,
                                .minor = sim_config_get()->cc_minor,
                                .utilization = utilization(device),
                                .temperature = -1,
                                .power = -1};
    sim_device_uuid_text(device, found->uuid);
    snprintf(found->pci, sizeof found->pci, "00000000:%02X:00.0", (unsigned)device + 1);
    return state_of(device);
}

nvmlReturn_t nv_find_processes(nvmlDevice_t handle, nvmlProcessInfo_t *processes, unsigned room,
                               unsigned *count) {
    int device;
    NV_TRY(find(handle, &device));
    struct live_use uses[LIVE_PROCESSES];
    *count = live_read_uses(device, uses, LIVE_PROCESSES);
    for (unsigned i = 0; i < *count && i < room; i++)
        processes[i] =
            (nvmlProcessInfo_t){(unsigned)uses[i].pid, uses[i].memory, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    return state_of(device);
}
