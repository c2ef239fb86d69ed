#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_interop/runtime_launch.h"
#include "functions.h"
#include "guest.h"

static int attribute(CUdevice device, CUdevice_attribute attribute) {
    return gf_session.devices[device].attributes[attribute];
}

static CUresult initialise(void) {
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

CUresult gf_cuInit(unsigned Flags) {
    gf_runtime_asks(false); /* its sweep of look-ups is over */
    return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : gf_initialising(initialise);
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

CUresult gf_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    char text[32];
    if (pciBusId == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!gf_is_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(text, sizeof text, "%04X:%02X:%02X.0",
             (unsigned)attribute(dev, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
             (unsigned)attribute(dev, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
             (unsigned)attribute(dev, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    if ((size_t)len <= strlen(text)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    strcpy(pciBusId, text);
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
    unsigned domain = 0, bus, device, function = 0;
    if (dev == NULL || pciBusId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) < 2) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (int i = 0; i < gf_session.device_count; i++) {
        if (domain == (unsigned)attribute(i, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) &&
            bus == (unsigned)attribute(i, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) &&
            device == (unsigned)attribute(i, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) && function == 0) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* Of none of them, for the host's memory is on another machine. */
CUresult gf_cuDeviceGetHostAtomicCapabilities(unsigned *capabilities, const CUatomicOperation *operations,
                                              unsigned count, CUdevice dev) {
    if (capabilities == NULL || operations == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!gf_is_device(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    memset(capabilities, 0, count * sizeof *capabilities);
    return CUDA_SUCCESS;
}
