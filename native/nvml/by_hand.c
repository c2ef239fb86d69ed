/* The functions that are more than an answer: the library's life, handles, lists, and structs with a version.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml/nvml.h"

static nvmlReturn_t refuse(nvmlReturn_t result) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    return result;
}

nvmlReturn_t nv_unsupported(void) {
    return refuse(NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nv_denied(void) {
    return refuse(NVML_ERROR_NO_PERMISSION);
}

nvmlReturn_t nv_text(char *text, unsigned length, const char *value) {
    if (strlen(value) >= length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(text, value, strlen(value) + 1);
    return NVML_SUCCESS;
}

#pragma GCC visibility push(default)

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    return nv_begin();
}

nvmlReturn_t nvmlInit_v2(void) {
    return nv_begin();
}

nvmlReturn_t nvmlInit(void) {
    return nv_begin();
}

nvmlReturn_t nvmlShutdown(void) {
    return nv_end();
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } texts[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].result == result) {
            return texts[i].text;
        }
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    NV_REQUIRE(version != NULL);
    return system.driver_version[0] == '\0' ? NVML_ERROR_NOT_SUPPORTED
                                            : nv_text(version, length, system.driver_version);
}

/* CUDA's version and the driver's, of the library itself: nobody need have begun. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    struct nv_system system;
    NV_REQUIRE(version != NULL);
    NV_TRY(nv_begin());
    nvmlReturn_t found = nv_find_system(&system);
    nv_end();
    NV_TRY(found);
    char text[sizeof system.driver_version + 12];
    snprintf(text, sizeof text, "%d.%s", system.cuda_version / 1000, system.driver_version);
    return nv_text(version, length, text);
}

/* What nvidia-smi asks for beside nvml.h: there is no table here. */
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id) {
    NV_REQUIRE(table != NULL && id != NULL);
    *table = NULL;
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* The processes run on this machine, so the kernel knows their names. As NVML, it crops them to what fits. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    NV_REQUIRE(name != NULL && length > 0);
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NVML_ERROR_NOT_FOUND;
    }
    name[fread(name, 1, length - 1, file)] = '\0'; /* arguments end in zeros: the first one remains */
    fclose(file);
    return NVML_SUCCESS;
}

/* Of compute capabilities; all that are newer count as unknown. */
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *arch) {
    static const struct {
        int capability;
        unsigned arch;
    } known[] = {{30, 2}, {50, 3}, {60, 4}, {70, 5},   {75, 6},
                 {80, 7}, {89, 8}, {90, 9}, {100, 10}, {130, ~0u}};
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(arch != NULL);
    *arch = ~0u;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (10 * found.major + found.minor >= known[i].capability) {
            *arch = known[i].arch;
        }
    }
    return NVML_SUCCESS;
}

/* -- handles */

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    NV_REQUIRE(device != NULL && index < system.device_count);
    *device = &nv_handles[index];
    struct nv_device sound;
    return nv_find_device(*device, &sound);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

#define UUID_FORM "00000000-0000-0000-0000-000000000000"

/* The first device of which `is_named` says that this is its name. */
static nvmlReturn_t find_by(bool (*is_named)(const struct nv_device *device, const char *text),
                            const char *text, nvmlDevice_t *device) {
    struct nv_system system;
    NV_TRY(nv_find_system(&system));
    NV_REQUIRE(device != NULL && text != NULL && text[0] != '\0');
    for (unsigned i = 0; i < system.device_count * (1 + system.instances); i++) {
        struct nv_device one;
        nvmlReturn_t state = nv_find_device(&nv_handles[i], &one);
        if (state != NVML_SUCCESS && state != NVML_ERROR_GPU_IS_LOST) {
            return state;
        }
        if (is_named(&one, text)) {
            *device = &nv_handles[i];
            return state;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct nv_device *device, const char *text) {
    size_t size = strlen(device->uuid), wanted = strlen(text);
    return wanted <= size && strcasecmp(device->uuid + size - wanted, text) == 0;
}

/* With its prefix or as CUDA tells it, which is how cuda-core asks. */
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NV_REQUIRE(uuid != NULL && (strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0 ||
                                strlen(uuid) == strlen(UUID_FORM)));
    return find_by(has_uuid, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    NV_REQUIRE(uuid != NULL);
    if (uuid->version != NVML_UUID_V1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    char text[sizeof uuid->value.str] = "";
    if (uuid->type == NVML_UUID_TYPE_ASCII) {
        memcpy(text, uuid->value.str, sizeof text - 1);
        return nvmlDeviceGetHandleByUUID(text, device);
    }
    NV_REQUIRE(uuid->type == NVML_UUID_TYPE_BINARY);
    size_t at = 0;
    for (size_t i = 0; i < sizeof uuid->value.bytes; i++) {
        at += (size_t)sprintf(text + at, UUID_FORM[at] == '-' ? "-%02x" : "%02x", uuid->value.bytes[i]);
    }
    return find_by(has_uuid, text, device);
}

/* Domain, bus, device and function. */
static bool read_place(const char *text, unsigned place[4]) {
    int end = 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &place[0], &place[1], &place[2], &place[3], &end) != 4) {
        place[0] = 0;
        if (sscanf(text, "%x:%x.%x%n", &place[1], &place[2], &place[3], &end) != 3) {
            return false;
        }
    }
    return text[end] == '\0';
}

static bool is_at(const struct nv_device *device, const char *text) {
    unsigned its[4], wanted[4];
    return read_place(device->pci, its) && read_place(text, wanted) && memcmp(its, wanted, sizeof its) == 0;
}

/* "00000000:01:00.0"; a domain of four digits and none are understood too, as NVML does. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device) {
    return find_by(is_at, id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

/* -- MIG: devices that are divided into instances */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct nv_system system;
    struct nv_device found;
    NV_TRY(nv_find_system(&system));
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(current != NULL && pending != NULL && found.instance == 0);
    if (system.instances == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *current = *pending = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    struct nv_system system;
    struct nv_device found;
    NV_TRY(nv_find_system(&system));
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(count != NULL);
    *count = found.instance ? 0 : system.instances;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                 nvmlDevice_t *instance) {
    struct nv_system system;
    struct nv_device found;
    NV_TRY(nv_find_system(&system));
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(instance != NULL && found.instance == 0);
    if (system.instances == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (index >= system.instances) {
        return NVML_ERROR_NOT_FOUND;
    }
    *instance = &nv_handles[system.device_count + found.index * system.instances + index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device) {
    struct nv_device found;
    NV_TRY(nv_find_device(instance, &found));
    NV_REQUIRE(device != NULL && found.instance != 0);
    *device = &nv_handles[found.index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(id != NULL);
    *id = found.instance;
    return found.instance ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(id != NULL);
    *id = 0;
    return found.instance ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* -- clocks, and what devices are to each other */

static nvmlReturn_t tell_clock(nvmlDevice_t device, nvmlClockType_t type, bool most, unsigned *clock) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(clock != NULL);
    const int of_memory = most ? found.memory_clock_most : found.memory_clock;
    const int of_others = most ? found.clock_most : found.clock;
    const int mhz = type == NVML_CLOCK_MEM                                 ? of_memory
                    : type == NVML_CLOCK_SM || type == NVML_CLOCK_GRAPHICS ? of_others
                                                                           : -1;
    if (mhz < 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *clock = (unsigned)mhz;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock) {
    return tell_clock(device, type, false, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock) {
    return tell_clock(device, type, true, clock);
}

/* Of memory that one reaches of the other; of NVLink and atomic operations nothing is told. NCCL asks of
 * every pair, a device and itself among them, and takes an error for the end. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status) {
    struct nv_device one, other;
    NV_TRY(nv_find_device(device1, &one));
    NV_TRY(nv_find_device(device2, &other));
    NV_REQUIRE(status != NULL && index >= 0 && index < NVML_P2P_CAPS_INDEX_UNKNOWN);
    const bool reaches = one.index == other.index || (one.peers >> other.index & 1) != 0;
    const bool told = index == NVML_P2P_CAPS_INDEX_READ || index == NVML_P2P_CAPS_INDEX_WRITE;
    *status = told && reaches ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* -- structs */

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(info != NULL);
    *info = (nvmlPciInfo_t){.domain = 0};
    if (sscanf(found.pci, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    snprintf(info->busId, sizeof info->busId, "%s", found.pci);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff);
    return NVML_SUCCESS;
}

/* Older programs have room for what comes before its newer members. */
static nvmlReturn_t tell_pci(nvmlDevice_t device, void *info, size_t size) {
    nvmlPciInfo_t whole;
    NV_TRY(nvmlDeviceGetPciInfo_v3(device, info != NULL ? &whole : NULL));
    memcpy(info, &whole, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *info) {
    return tell_pci(device, info, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *info) {
    return tell_pci(device, info, offsetof(nvmlPciInfo_t, busId));
}

#define DISPLAY_CONTROLLER 3
#define NO_DISPLAY         2 /* "3D controller" */

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *info) {
    nvmlPciInfo_t found;
    NV_TRY(nvmlDeviceGetPciInfo_v3(device, info != NULL ? &found : NULL));
    if (info->version != NVML_PCI_INFO_EXT) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    *info = (nvmlPciInfoExt_t){.version = NVML_PCI_INFO_EXT,
                               .domain = found.domain,
                               .bus = found.bus,
                               .device = found.device,
                               .baseClass = DISPLAY_CONTROLLER,
                               .subClass = NO_DISPLAY};
    memcpy(info->busId, found.busId, sizeof info->busId);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(memory != NULL);
    if (memory->version != NVML_MEMORY_V2) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    *memory = (nvmlMemory_v2_t){NVML_MEMORY_V2, found.memory_total, 0, found.memory_total - found.memory_used,
                                found.memory_used};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(temperature != NULL);
    if (temperature->version != NVML_TEMPERATURE_V1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    temperature->temperature = found.temperature;
    return found.temperature >= 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
    NV_REQUIRE(count != NULL);
    unsigned room = processes != NULL ? *count : 0;
    NV_TRY(nv_find_processes(device, processes, room, count));
    return *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v2_t *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *processes) {
    NV_REQUIRE(count != NULL);
    nvmlProcessInfo_t found[NV_PROCESSES];
    unsigned room = processes != NULL ? *count : 0;
    NV_TRY(nv_find_processes(device, found, NV_PROCESSES, count));
    for (unsigned i = 0; i < *count && i < room && i < NV_PROCESSES; i++) {
        processes[i] = (nvmlProcessInfo_v1_t){found[i].pid, found[i].usedGpuMemory};
    }
    return *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}
