/* The part of NVML's interface that our libraries answer, declared here after NVIDIA's published ABI, so that
 * building needs no header of theirs. */
#pragma once

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device;
    unsigned pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned version;
    unsigned domain, bus, device;
    unsigned pciDeviceId, pciSubSystemId;
    unsigned baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu, memory; /* per cent */
} nvmlUtilization_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef nvmlProcessInfo_t nvmlProcessInfo_v2_t;

typedef struct {
    unsigned version;
    int sensorType;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned version, type;
    union {
        char str[41];
        unsigned char bytes[16];
    } value;
} nvmlUUID_t;

typedef unsigned nvmlAffinityScope_t;
typedef int nvmlClockType_t;
typedef int nvmlComputeMode_t;
typedef int nvmlGpuP2PCapsIndex_t;
typedef int nvmlGpuP2PStatus_t;
typedef int nvmlTemperatureSensors_t;

#define NVML_MEMORY_V2      (sizeof(nvmlMemory_v2_t) | 2u << 24)
#define NVML_PCI_INFO_EXT   (sizeof(nvmlPciInfoExt_t) | 1u << 24)
#define NVML_TEMPERATURE_V1 (sizeof(nvmlTemperature_t) | 1u << 24)
#define NVML_UUID_V1        (sizeof(nvmlUUID_t) | 1u << 24)
#define NVML_NO_INSTANCE    0xffffffffu

enum { NVML_AFFINITY_SCOPE_NODE, NVML_AFFINITY_SCOPE_SOCKET };
enum { NVML_UUID_TYPE_ASCII = 1, NVML_UUID_TYPE_BINARY };
enum { NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM };
enum { NVML_P2P_CAPS_INDEX_READ, NVML_P2P_CAPS_INDEX_WRITE, NVML_P2P_CAPS_INDEX_UNKNOWN = 5 };
enum { NVML_P2P_STATUS_OK, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };
