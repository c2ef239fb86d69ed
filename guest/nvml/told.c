/* What the monitor tells of the program's devices, kept for a moment: tools ask twenty things of each device
 * in a row. No lease is taken and no place in a queue, so a tool that only looks occupies nothing
 * (DESIGN.md). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver_interop/visible.h"
#include "nvml/nvml.h"
#include "wire/look.h"

#define FRESH_NS 50000000
#define PAUSE_NS 1000000000 /* after a look that brought nothing: looks are calls, and those are counted */

struct nvmlDevice_st nv_handles[NV_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all below but `users` */
static _Atomic unsigned users;
static uint64_t told_at, asked_in_vain;
static uint64_t held; /* by this process when it was told */
static struct nv_system the_system;
static struct nv_device devices[NV_DEVICES];
static struct gf_look_process processes[NV_PROCESSES];
static unsigned process_count;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void take_device(unsigned index, const struct gf_look_device *said) {
    struct nv_device *device = &devices[index];
    *device = (struct nv_device){.index = index,
                                 .memory_total = said->memory_total,
                                 .memory_used = said->memory_used,
                                 .major = said->major,
                                 .minor = said->minor,
                                 .utilization = said->utilization,
                                 .temperature = said->temperature,
                                 .power = said->power,
                                 .peers = said->peers,
                                 .clock = said->clocks[0],
                                 .memory_clock = said->clocks[1],
                                 .clock_most = said->clocks[2],
                                 .memory_clock_most = said->clocks[3],
                                 .pcie_generation = said->link[0],
                                 .pcie_width = said->link[1],
                                 .pcie_generation_most = said->link[2],
                                 .pcie_width_most = said->link[3]};
    if (device->memory_used > device->memory_total) {
        device->memory_used = device->memory_total;
    }
    memcpy(device->name, said->name, sizeof device->name - 1);
    memcpy(device->pci, said->pci, sizeof said->pci);
    gf_uuid_text(said->uuid, said->instance != 0, device->uuid);
}

/* Lock held. The sizes were checked where the frame was read. */
static void take(const struct gf_devices *said) {
    const struct gf_look_device *first = (const struct gf_look_device *)(said + 1);
    the_system.cuda_version = (int)said->driver_version;
    the_system.device_count = said->device_count < NV_DEVICES ? said->device_count : NV_DEVICES;
    memcpy(the_system.driver_version, said->driver, sizeof said->driver);
    the_system.driver_version[sizeof said->driver - 1] = '\0';
    for (unsigned i = 0; i < the_system.device_count; i++) {
        take_device(i, &first[i]);
    }
    process_count = said->process_count < NV_PROCESSES ? said->process_count : NV_PROCESSES;
    memcpy(processes, first + said->device_count, process_count * sizeof *processes);
}

/* Lock held. A server that does not answer leaves what it said last; the first time there must be an answer.
 * Who allocates between two looks sees it, however fast. */
static bool refresh(void) {
    uint64_t at = now(), holds = gpuferry_held();
    bool fresh = at - told_at < FRESH_NS && holds == held;
    if (told_at != 0 && (fresh || at - asked_in_vain < PAUSE_NS)) {
        return true;
    }
    struct gf_devices *said = gpuferry_look();
    if (said != NULL) {
        take(said);
        held = holds;
        told_at = now();
        free(said);
    } else {
        asked_in_vain = now();
    }
    return told_at != 0;
}

static nvmlReturn_t enter(void) {
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    pthread_mutex_lock(&lock);
    refresh();
    return NVML_SUCCESS;
}

nvmlReturn_t nv_begin(void) {
    pthread_mutex_lock(&lock);
    told_at = 0;
    bool answered = refresh();
    pthread_mutex_unlock(&lock);
    if (!answered) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nv_end(void) {
    unsigned before = atomic_load(&users);
    do {
        if (before == 0) {
            return NVML_ERROR_UNINITIALIZED;
        }
    } while (!atomic_compare_exchange_weak(&users, &before, before - 1));
    return NVML_SUCCESS;
}

nvmlReturn_t nv_find_system(struct nv_system *system) {
    NV_TRY(enter());
    *system = the_system;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

nvmlReturn_t nv_find_device(nvmlDevice_t handle, struct nv_device *device) {
    NV_TRY(enter());
    bool known = handle >= nv_handles && handle < nv_handles + the_system.device_count;
    if (known) {
        *device = devices[handle - nv_handles];
    }
    pthread_mutex_unlock(&lock);
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nv_find_processes(nvmlDevice_t handle, nvmlProcessInfo_t *found, unsigned room,
                               unsigned *count) {
    struct nv_device device;
    NV_TRY(nv_find_device(handle, &device));
    NV_TRY(enter());
    *count = 0;
    for (unsigned i = 0; i < process_count; i++) {
        if (processes[i].device != device.index) {
            continue;
        }
        if (*count < room) {
            found[*count] = (nvmlProcessInfo_t){processes[i].pid, processes[i].memory, NVML_NO_INSTANCE,
                                                NVML_NO_INSTANCE};
        }
        ++*count;
    }
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}
