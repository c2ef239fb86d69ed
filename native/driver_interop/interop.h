/* What NVIDIA's runtime demands of a driver library beside the driver API: symbol look-up by version, its
 * private tables, storage per context, and its self-test. Used by the guest and by the simulated device. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "driver_interop/cuda_driver.h"

/* One row of the generated look-up table, ordered by name, then by version. */
struct gf_symbol {
    const char *name; /* base name, as cuGetProcAddress is asked for it */
    int since;        /* CUDA version that introduced this binary interface */
    int per_thread;   /* its default stream is the thread's own */
    void *function;
};
extern const struct gf_symbol gf_symbols[];
extern const size_t gf_symbol_count;

struct gf_interop_device {
    CUuuid uuid; /* the very values that cuDeviceGetUuid_v2 and cuDeviceGetAttribute give */
    int32_t pci_domain;
    int32_t pci_bus;
    int32_t pci_device;
};

/* What the embedding library provides, by defining `gf_interop_driver`. */
struct gf_interop_driver {
    CUresult (*current_context)(CUcontext *context);
    CUresult (*primary_context)(CUdevice device,
                                CUcontext *context); /* its handle, neither retained nor activated */
    bool (*is_green)(CUcontext context);             /* whether cuCtxFromGreenCtx has given it */
    CUresult (*load_module)(CUmodule *module, const void *image); /* image: as cuModuleLoadData takes it */
    int (*device_count)(void);
    CUresult (*device)(int ordinal, struct gf_interop_device *device);
    int (*driver_version)(void);
    void (*log)(const char *text); /* one line, no newline */
};
extern const struct gf_interop_driver gf_interop_driver;

/* cuGetProcAddress, and cuGetProcAddress_v2, which `tells` by null and the status that there is no such
 * function, and succeeds. */
CUresult gf_get_proc_address(const char *symbol, void **function, int version, cuuint64_t flags, bool tells,
                             CUdriverProcAddressQueryResult *status);

/* cuGetExportTable. */
CUresult gf_get_export_table(const void **table, const CUuuid *id);

/* Ends the storage of a context: its destructors run, in the caller's thread. To be called when a context is
 * destroyed, and when the last reference to a primary context is released or it is reset, while its handle
 * still is valid. */
void gf_context_storage_drop(CUcontext context);
