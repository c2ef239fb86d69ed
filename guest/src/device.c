#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functions.h"
#include "guest.h"

static int attribute(CUdevice_attribute attribute) {
    return gf_session.device.attributes[attribute];
}

static bool valid(CUdevice device) {
    return device >= 0 && device < gf_session.device_count;
}

CUresult gf_cuInit(unsigned Flags) {
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_session_connect();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (gf_session.device_count == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    enum gf_state cold = GF_COLD;
    if (!atomic_compare_exchange_strong(&gf_session.state, &cold, GF_READY) && cold != GF_READY) {
        return gf_session_error();
    }
    return CUDA_SUCCESS;
}

/* Asked before cuInit, by a runtime that gives up on an error: so without a server, say what this guest was
 * built for and let cuInit say what is wrong. */
CUresult gf_cuDriverGetVersion(int *driverVersion) {
    if (driverVersion == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = gf_session_connect() == CUDA_SUCCESS ? (int)gf_session.driver_version : CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGet(CUdevice *device, int ordinal) {
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetCount(int *count) {
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = gf_session.device_count;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetName(char *name, int len, CUdevice dev) {
    if (name == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(name, (size_t)len, "%s", gf_session.device.name);
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    if (uuid == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    memcpy(uuid, gf_session.device.uuid, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *bytes =
        gf_session.quota < gf_session.device.total_memory ? gf_session.quota : gf_session.device.total_memory;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    if (pi == NULL || (int)attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pi = attribute(attrib);
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev) {
    if (pi == NULL || (unsigned)type >= CU_EXEC_AFFINITY_TYPE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pi = 0;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev) {
    if (prop == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *prop = (CUdevprop){
        .maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .maxThreadsDim = {attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
        .maxGridSize = {attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                        attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                        attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
        .sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory = attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        .memPitch = attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        .regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .clockRate = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    if (major == NULL || minor == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    char text[32];
    if (pciBusId == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(text, sizeof text, "%04X:%02X:%02X.0", (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
             (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
             (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    if ((size_t)len <= strlen(text)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    strcpy(pciBusId, text);
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
    unsigned domain = 0, bus, device, function;
    if (dev == NULL || pciBusId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) < 2) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (gf_session.device_count == 0 || domain != (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) ||
        bus != (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) ||
        device != (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = 0;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    if (canAccessPeer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(dev) || !valid(peerDev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *canAccessPeer = 0;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                    CUdevice dstDevice) {
    /* One device in a session: there is no pair of different ones to ask about. */
    return value == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
}
