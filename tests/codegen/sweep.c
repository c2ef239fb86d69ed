/* A libcuda.so.1 that only knows its version and says what it was asked for: one line per look-up. See
 * test_interop.py. */
#include <stdio.h>
#include "simdevice_names.h"
#include "driver_interop/interop.h"

void sim_unsupported(const char *name) {
}

static void log_text(const char *text) {
    printf("log %s\n", text);
}

const struct gf_interop_driver gf_interop_driver = {.log = log_text};

CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CUresult result = gf_get_proc_address(symbol, function, version, flags, true, status);
    printf("%s %s\n", function && *function ? "found" : "missing", symbol);
    return result;
}
