/* cuGetProcAddress and cuGetExportTable, and what they need to know about this driver. */
#include "driver_interop/interop.h"
#include "device.h"
#include "context.h"
#include "log.h"
#include "needs.h"
#include "thread.h"

/* By its presence a program that loaded this library can tell that it is not NVIDIA's. */
__attribute__((visibility("default"))) const char gpuferry_simulated_device[] = "gpuferry simulated device";

/* And whether it loads machine code, as NVIDIA's does. */
__attribute__((visibility("default"))) bool gpuferry_simulated_loads_machine_code(void) {
    return sim_config_get()->skip_code;
}

static CUresult primary_context(CUdevice ordinal, CUcontext *context) {
    SIM_TRY(sim_enter());
    struct sim_device *device = sim_device_at(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *context = SIM_POINTER(CUcontext, device->primary);
    return CUDA_SUCCESS;
}

static bool is_green(CUcontext handle) {
    const struct sim_context *context = sim_context_named(handle);
    return context && context->green;
}

static CUresult describe(int ordinal, struct gf_interop_device *out) {
    struct sim_device *device = sim_device_at(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    out->uuid = device->uuid;
    SIM_TRY(sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &out->pci_domain));
    SIM_TRY(sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &out->pci_bus));
    return sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &out->pci_device);
}

static int driver_version(void) {
    return sim_config_get()->driver_version;
}

static void log_line(const char *text) {
    sim_message(SIM_LOG_INFO, "%s", text);
}

const struct gf_interop_driver gf_interop_driver = {
    .current_context = cuCtxGetCurrent,
    .primary_context = primary_context,
    .is_green = is_green,
    .load_module = cuModuleLoadData,
    .device_count = sim_device_count,
    .device = describe,
    .driver_version = driver_version,
    .log = log_line,
};

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    return gf_get_proc_address(symbol, function, version, flags, true, status);
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    return gf_get_proc_address(symbol, function, version, flags, false, NULL);
}

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    return gf_get_export_table(table, id);
}

static bool is_first(const char *name) {
    enum { MOST = 1024 };
    static _Atomic(const char *) told[MOST]; /* by address: each entry has one name */
    for (int i = 0; i < MOST; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&told[i], &none, name))
            return true;
        if (none == name)
            return false;
    }
    return false;
}

/* Behind a guest nothing is said: it says so itself. */
void sim_unsupported(const char *name, const char *why) {
    if (sim_message_has_copy() || !is_first(name))
        return;
    if (why)
        sim_message(SIM_LOG_ERROR, "%s is not supported: %s", name, why);
    else
        sim_message(SIM_LOG_ERROR, "%s: what it was asked for is not supported", name);
}
