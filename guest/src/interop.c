/* What native/driver_interop needs to know of this driver. */
#include "driver_interop/interop.h"

#include "context.h"
#include "functions.h"
#include "module.h"

static CUresult primary_context(CUdevice device, CUcontext *context) {
    if (!gf_is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *context = (CUcontext)gf_context_primary(device);
    return CUDA_SUCCESS;
}

static bool is_green(CUcontext handle) {
    const struct gf_context *context = gf_context_find(handle);
    return context != NULL && context->green != 0;
}

static int device_count(void) {
    return gf_session.device_count;
}

static CUresult device_identity(int ordinal, struct gf_interop_device *device) {
    const int32_t *attributes = gf_session.devices[ordinal].attributes;
    device->pci_domain = attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
    device->pci_bus = attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
    device->pci_device = attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
    return gf_cuDeviceGetUuid_v2(&device->uuid, ordinal);
}

static int driver_version(void) {
    int version;
    gf_cuDriverGetVersion(&version);
    return version;
}

static void log_line(const char *text) {
    gf_info("%s", text);
}

const struct gf_interop_driver gf_interop_driver = {
    .current_context = gf_cuCtxGetCurrent,
    .primary_context = primary_context,
    .is_green = is_green,
    .load_module = gf_cuModuleLoadData,
    .device_count = device_count,
    .device = device_identity,
    .driver_version = driver_version,
    .log = log_line,
};
