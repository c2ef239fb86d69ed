/* The simulated libnvidia-ml.so.1: the identity that the simulated driver reports, and the live figures of
 * all processes that use it. */
#include "config.h"
#include "live_file.h"
#include "live_read.h"
#include "nvml/types.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PERIOD_NS UINT64_C(100000000) /* shortest over which utilisation is measured */

#define NVML_TRY(expression)                                                                                 \
    do {                                                                                                     \
        nvmlReturn_t try_result_ = (expression);                                                             \
        if (try_result_ != NVML_SUCCESS)                                                                     \
            return try_result_;                                                                              \
    } while (0)

#define NVML_REQUIRE(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return NVML_ERROR_INVALID_ARGUMENT;                                                              \
    } while (0)

struct nvmlDevice_st {
    uint64_t since_ns, busy_ns; /* where the period under way began; `lock` */
    unsigned utilization;       /* of the last whole period, per cent */
};

static struct nvmlDevice_st devices[SIM_MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned users;

static int ordinal_of(nvmlDevice_t device) {
    return (int)(device - devices);
}

static nvmlReturn_t enter(void) {
    return atomic_load(&users) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t check(nvmlDevice_t device) {
    NVML_TRY(enter());
    NVML_REQUIRE(device >= devices && device < devices + sim_config_get()->device_count);
    return live_read_lost(ordinal_of(device)) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

static nvmlReturn_t put_text(char *text, unsigned length, const char *value) {
    NVML_REQUIRE(text);
    if (strlen(value) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(text, value, strlen(value) + 1);
    return NVML_SUCCESS;
}

/* -- library and system */

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    if (sim_config_get()->error != CUDA_SUCCESS)
        return NVML_ERROR_UNKNOWN;
    if (sim_config_get()->device_count == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

NVML_EXPORT nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

NVML_EXPORT nvmlReturn_t nvmlShutdown(void) {
    unsigned before = atomic_load(&users);
    do {
        if (before == 0)
            return NVML_ERROR_UNINITIALIZED;
    } while (!atomic_compare_exchange_weak(&users, &before, before - 1));
    return NVML_SUCCESS;
}

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
        return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    case NVML_ERROR_UNKNOWN:
        break;
    }
    return "Unknown Error";
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned length) {
    NVML_TRY(enter());
    return put_text(text, length, SIM_VERSION);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned length) {
    NVML_TRY(enter());
    return put_text(text, length, SIM_VERSION);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    NVML_REQUIRE(version);
    *version = sim_config_get()->driver_version;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *text, unsigned length) {
    NVML_TRY(enter());
    NVML_REQUIRE(text && length);
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    text[fread(text, 1, length - 1, file)] = '\0'; /* arguments end in zeros: the first one remains */
    fclose(file);
    return NVML_SUCCESS;
}

/* -- devices */

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    NVML_TRY(enter());
    NVML_REQUIRE(count);
    *count = (unsigned)sim_config_get()->device_count;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    NVML_TRY(enter());
    NVML_REQUIRE(device && index < (unsigned)sim_config_get()->device_count);
    *device = &devices[index];
    return live_read_lost((int)index) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NVML_TRY(enter());
    NVML_REQUIRE(uuid && device);
    for (int i = 0; i < sim_config_get()->device_count; i++) {
        char text[SIM_UUID_TEXT];
        sim_device_uuid_text(i, text);
        if (strcasecmp(text, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device) {
    NVML_TRY(enter());
    NVML_REQUIRE(text && device);
    unsigned domain = 0, bus, slot, function;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        NVML_REQUIRE(sscanf(text, "%x:%x.%x", &bus, &slot, &function) >= 2);
    }
    if (domain || slot || bus < 1 || bus > (unsigned)sim_config_get()->device_count)
        return NVML_ERROR_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    NVML_TRY(check(device));
    NVML_REQUIRE(index);
    *index = (unsigned)ordinal_of(device);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    return nvmlDeviceGetIndex(device, minor);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length) {
    NVML_TRY(check(device));
    return put_text(text, length, SIM_DEVICE_NAME);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length) {
    NVML_TRY(check(device));
    char uuid[SIM_UUID_TEXT];
    sim_device_uuid_text(ordinal_of(device), uuid);
    return put_text(text, length, uuid);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    NVML_TRY(check(device));
    NVML_REQUIRE(info);
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)ordinal_of(device) + 1;
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", info->bus);
    snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", info->bus);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    NVML_TRY(check(device));
    NVML_REQUIRE(major && minor);
    *major = sim_config_get()->cc_major;
    *minor = sim_config_get()->cc_minor;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode) {
    NVML_TRY(check(device));
    NVML_REQUIRE(mode);
    *mode = 0; /* any number of contexts */
    return NVML_SUCCESS;
}

static void read_memory(nvmlDevice_t device, nvmlMemory_t *memory) {
    /* each process has limits of its own, so together they may hold more than there is */
    uint64_t total = sim_config_get()->memory, used = live_read_memory(ordinal_of(device));
    *memory = (nvmlMemory_t){.total = total, .used = used < total ? used : total};
    memory->free = total - memory->used;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NVML_TRY(check(device));
    NVML_REQUIRE(memory);
    read_memory(device, memory);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NVML_TRY(check(device));
    NVML_REQUIRE(memory);
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlMemory_t plain;
    read_memory(device, &plain);
    *memory = (nvmlMemory_v2_t){NVML_MEMORY_V2, plain.total, 0, plain.free, plain.used};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    NVML_TRY(check(device));
    NVML_REQUIRE(rates);
    pthread_mutex_lock(&lock);
    uint64_t now = live_now_ns(), busy = live_read_busy_ns(ordinal_of(device));
    uint64_t elapsed = now - device->since_ns;
    if (elapsed >= PERIOD_NS) {
        /* a process that died in a kernel takes its part with it, so the sum can shrink */
        uint64_t more = busy > device->busy_ns ? busy - device->busy_ns : 0;
        bool first = device->since_ns == 0;
        device->utilization =
            first ? 0 : (unsigned)(more < elapsed ? (more * 100 + elapsed / 2) / elapsed : 100);
        device->since_ns = now;
        device->busy_ns = busy;
    }
    *rates = (nvmlUtilization_t){.gpu = device->utilization};
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_t *processes) {
    NVML_TRY(check(device));
    NVML_REQUIRE(count);
    struct live_use uses[LIVE_PROCESSES];
    unsigned room = processes ? *count : 0;
    *count = live_read_uses(ordinal_of(device), uses, LIVE_PROCESSES);
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        processes[i] =
            (nvmlProcessInfo_t){(unsigned)uses[i].pid, uses[i].memory, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                  nvmlProcessInfo_t *processes) {
    NVML_TRY(check(device));
    NVML_REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}

/* What a simulated device has not got. One per line: name, parameters after the device. */
#define NVML_UNSUPPORTED(X)                                                                                  \
    X(nvmlDeviceGetTemperature, int sensor, unsigned *value)                                                 \
    X(nvmlDeviceGetTemperatureV, void *value)                                                                \
    X(nvmlDeviceGetTemperatureThreshold, int threshold, unsigned *value)                                     \
    X(nvmlDeviceGetPowerUsage, unsigned *value)                                                              \
    X(nvmlDeviceGetPowerManagementLimit, unsigned *value)                                                    \
    X(nvmlDeviceGetEnforcedPowerLimit, unsigned *value)                                                      \
    X(nvmlDeviceGetTotalEnergyConsumption, unsigned long long *value)                                        \
    X(nvmlDeviceGetClockInfo, int clock, unsigned *value)                                                    \
    X(nvmlDeviceGetMaxClockInfo, int clock, unsigned *value)                                                 \
    X(nvmlDeviceGetFanSpeed, unsigned *value)                                                                \
    X(nvmlDeviceGetPerformanceState, int *value)                                                             \
    X(nvmlDeviceGetPersistenceMode, int *value)                                                              \
    X(nvmlDeviceGetEccMode, int *current, int *pending)                                                      \
    X(nvmlDeviceGetMigMode, unsigned *current, unsigned *pending)                                            \
    X(nvmlDeviceGetEncoderUtilization, unsigned *value, unsigned *period)                                    \
    X(nvmlDeviceGetDecoderUtilization, unsigned *value, unsigned *period)                                    \
    X(nvmlDeviceGetSerial, char *text, unsigned length)                                                      \
    X(nvmlDeviceGetVbiosVersion, char *text, unsigned length)                                                \
    X(nvmlDeviceGetPcieThroughput, int counter, unsigned *value)

#define ANSWER(name, ...)                                                                                    \
    NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, __VA_ARGS__) {                                        \
        NVML_TRY(check(device));                                                                             \
        return NVML_ERROR_NOT_SUPPORTED;                                                                     \
    }
NVML_UNSUPPORTED(ANSWER)
