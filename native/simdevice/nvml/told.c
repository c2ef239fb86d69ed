/* What the simulated libnvidia-ml.so.1 tells: the identity that the simulated driver reports, and the live
 * figures of all processes that use it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "card.h"
#include "config.h"
#include "live_file.h"
#include "live_read.h"
#include "nvml/nvml.h"

/* Programs compare it with versions of NVIDIA's driver: the first of those that have CUDA 13. */
#define DRIVER_VERSION "580.65.06"
#define PERIOD_NS      UINT64_C(100000000) /* shortest over which utilisation is measured */

_Static_assert((int)NV_DEVICES >= 2 * (int)SIM_MAX_DEVICES && (int)NV_PROCESSES >= (int)LIVE_PROCESSES,
               "all that there may be has a place");

enum { PCIE_GENERATION = 4, PCIE_WIDTH = 16 };

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
                                 .instances = (unsigned)sim_config_get()->instances,
                                 .cuda_version = sim_config_get()->driver_version,
                                 .driver_version = DRIVER_VERSION};
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

/* The devices as CUDA shows them, by the machine's ordinals, that a handle is about: an instance or whole
 * device is one; a device in MIG mode has several. */
struct part {
    unsigned index, instance;
    int first, count;
};

static nvmlReturn_t find(nvmlDevice_t handle, struct part *part) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    const unsigned count = system.device_count, each = system.instances;
    NV_REQUIRE(handle >= nv_handles && handle < nv_handles + count + count * each);
    const unsigned number = (unsigned)(handle - nv_handles);
    if (number < count) {
        const unsigned shown = each ? each : 1;
        *part = (struct part){.index = number, .first = (int)(number * shown), .count = (int)shown};
    } else {
        const unsigned ordinal = number - count;
        *part = (struct part){ordinal / each, ordinal % each + 1, (int)ordinal, 1};
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t state_of(const struct part *part) {
    return live_read_lost(part->first) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nv_find_device(nvmlDevice_t handle, struct nv_device *found) {
    struct part part;
    NV_TRY(find(handle, &part));
    const struct sim_config *config = sim_config_get();
    uint64_t total = config->memory * (uint64_t)part.count, used = 0;
    for (int i = 0; i < part.count; i++)
        used += live_read_memory(part.first + i);
    /* each process has limits of its own, so together they may hold more than there is */
    *found = (struct nv_device){.index = part.index,
                                .instance = part.instance,
                                .memory_total = total,
                                .memory_used = used < total ? used : total,
                                .major = config->cc_major,
                                .minor = config->cc_minor,
                                .utilization = config->instances ? -1 : utilization(part.first),
                                .temperature = -1,
                                .power = -1,
                                .peers = config->peers ? ~(UINT64_C(1) << part.index) : 0,
                                .clock = sim_card()->clock_khz / 1000,
                                .memory_clock = sim_card()->memory_clock_khz / 1000,
                                .clock_most = sim_card()->clock_khz / 1000,
                                .memory_clock_most = sim_card()->memory_clock_khz / 1000,
                                .pcie_generation = PCIE_GENERATION,
                                .pcie_width = PCIE_WIDTH,
                                .pcie_generation_most = PCIE_GENERATION,
                                .pcie_width_most = PCIE_WIDTH};
    sim_device_name(part.instance == 0, found->name);
    if (part.instance)
        sim_device_uuid_text(part.first, found->uuid);
    else
        sim_whole_uuid_text((int)part.index, found->uuid);
    snprintf(found->pci, sizeof found->pci, "00000000:%02X:00.0", part.index + 1);
    return state_of(&part);
}

nvmlReturn_t nv_find_processes(nvmlDevice_t handle, nvmlProcessInfo_t *processes, unsigned room,
                               unsigned *count) {
    struct part part;
    NV_TRY(find(handle, &part));
    *count = 0;
    for (int i = 0; i < part.count; i++) {
        struct live_use uses[LIVE_PROCESSES];
        const unsigned found = live_read_uses(part.first + i, uses, LIVE_PROCESSES);
        const unsigned instance = part.instance ? part.instance : (unsigned)i + 1;
        const bool divided = part.instance || part.count > 1;
        for (unsigned j = 0; j < found; j++, ++*count)
            if (*count < room)
                processes[*count] = (nvmlProcessInfo_t){(unsigned)uses[j].pid, uses[j].memory,
                                                        divided ? instance : NVML_NO_INSTANCE,
                                                        divided ? 0 : NVML_NO_INSTANCE};
    }
    return state_of(&part);
}
