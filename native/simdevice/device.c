#include "device.h"
#include "later.h"
#include "view.h"
#include "nvml/live.h"
#include "variance.h"
#include <stdio.h>
#include <string.h>

static struct sim_device devices[SIM_MAX_DEVICES];
static int device_count;

void sim_devices_start(void) {
    const struct sim_config *config = sim_config_get();
    for (int i = 0; i < config->visible_count; i++) {
        struct sim_device *device = &devices[i];
        device->ordinal = i;
        device->machine_ordinal = config->visible[i];
        device->memory = config->memory;
        uint64_t reserved = sim_choice(SIM_OPEN_RESERVED, 64) * SIM_GRANULARITY;
        atomic_init(&device->memory_used, reserved < config->memory / 16 ? reserved : 0);
        sim_device_uuid(device->machine_ordinal, &device->uuid);
    }
    device_count = config->visible_count;
    sim_live_start();
}

int sim_device_count(void) {
    return device_count;
}

struct sim_device *sim_device_at(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : NULL;
}

static bool charge(struct sim_device *device, uint64_t bytes) {
    uint64_t used = atomic_load(&device->memory_used);
    do {
        uint64_t taken = used + atomic_load(&device->memory_parting); /* in this order: never too little */
        if (taken > device->memory || bytes > device->memory - taken)
            return false;
    } while (!atomic_compare_exchange_weak(&device->memory_used, &used, used + bytes));
    sim_live_memory(device->machine_ordinal, (int64_t)bytes);
    return true;
}

bool sim_device_charge(struct sim_device *device, uint64_t bytes) {
    return charge(device, bytes) || (sim_later_wait() && charge(device, bytes));
}

void sim_device_refund(struct sim_device *device, uint64_t bytes) {
    atomic_fetch_sub(&device->memory_used, bytes);
    sim_live_memory(device->machine_ordinal, -(int64_t)bytes);
}

void sim_device_part(struct sim_device *device, uint64_t bytes) {
    atomic_fetch_add(&device->memory_parting, bytes);
    sim_device_refund(device, bytes);
}

void sim_device_parted(struct sim_device *device, uint64_t bytes) {
    atomic_fetch_sub(&device->memory_parting, bytes);
}

static CUresult find_device(CUdevice ordinal, struct sim_device **device) {
    SIM_TRY(sim_enter());
    *device = sim_device_at(ordinal);
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal) {
    struct sim_device *device;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out);
    SIM_TRY(find_device(ordinal, &device));
    *out = device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(count);
    *count = device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(name && length > 0);
    char text[SIM_NAME_TEXT];
    sim_device_name(false, text);
    snprintf(name, (size_t)length, "%s", text);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(uuid);
    *uuid = device->uuid;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(bytes);
    *bytes = device->memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
    SIM_TRY(find_device(ordinal, &device));
    return sim_device_attribute(device, attribute, value);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(major && minor);
    *major = sim_config_get()->cc_major;
    *minor = sim_config_get()->cc_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(properties);
    int *const fields[] = {
        &properties->maxThreadsPerBlock, &properties->maxThreadsDim[0],  &properties->maxThreadsDim[1],
        &properties->maxThreadsDim[2],   &properties->maxGridSize[0],    &properties->maxGridSize[1],
        &properties->maxGridSize[2],     &properties->sharedMemPerBlock, &properties->totalConstantMemory,
        &properties->SIMDWidth,          &properties->memPitch,          &properties->regsPerBlock,
        &properties->clockRate,          &properties->textureAlign,
    };
    /* the fields come in the order of the attributes that describe them, from 1 on */
    for (size_t i = 0; i < SIM_COUNT(fields); i++)
        SIM_TRY(sim_device_attribute(
            device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK + i), fields[i]));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(text && length > 12); /* and the end of the text */
    int domain, bus, slot;
    sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain);
    sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus);
    sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot);
    snprintf(text, (size_t)length, "%04X:%02X:%02X.0", (unsigned)domain, (unsigned)bus, (unsigned)slot);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && text);
    unsigned domain = 0, bus, slot, function = 0;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        SIM_REQUIRE(sscanf(text, "%x:%x.%x", &bus, &slot, &function) >= 2);
    }
    for (int i = 0; i < device_count; i++) {
        int values[3];
        sim_device_attribute(&devices[i], CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &values[0]);
        sim_device_attribute(&devices[i], CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &values[1]);
        sim_device_attribute(&devices[i], CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &values[2]);
        if ((unsigned)values[0] == domain && (unsigned)values[1] == bus && (unsigned)values[2] == slot &&
            function == 0) {
            *out = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, CUarray_format format, unsigned channels,
                                            CUdevice ordinal) {
    struct sim_device *device;
    struct sim_texel texel;
    SIM_REQUIRE(elements);
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(sim_texel_of(format, channels, &texel));
    *elements = UINT64_C(1) << 28;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice ordinal) {
    struct sim_device *device;
    SIM_TRY(find_device(ordinal, &device));
    SIM_REQUIRE(supported && type < CU_EXEC_AFFINITY_TYPE_MAX);
    *supported = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer_ordinal) {
    struct sim_device *device, *peer;
    SIM_TRY(find_device(ordinal, &device));
    SIM_TRY(find_device(peer_ordinal, &peer));
    SIM_REQUIRE(can);
    *can = device != peer && sim_config_get()->peers;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source,
                                 CUdevice destination) {
    struct sim_device *device, *peer;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(value);
    SIM_TRY(find_device(source, &device));
    SIM_TRY(find_device(destination, &peer));
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    switch ((int)attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = sim_config_get()->peers;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
