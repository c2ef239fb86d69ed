// Three ways to a function: link time, dlsym of the exported names, cuGetProcAddress by version; all lead to
// one that works.
#include <dlfcn.h>

#include "driver.h"

static void *resolve(const char *symbol, int version, cuuint64_t flags) {
    void *function = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    const CUresult result = cuGetProcAddress(symbol, &function, version, flags, &status);
    printf("%s at %d/%d -> %s, %s, status %d\n", symbol, version, (int)flags, check_name(result),
           function ? "found" : "none", (int)status);
    return function;
}

int main(void) {
    start();
    void *self = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(self != NULL);
    static const char *const names[] = {"cuInit",
                                        "cuMemAlloc",
                                        "cuMemAlloc_v2",
                                        "cuMemcpyHtoD",
                                        "cuMemcpyHtoD_v2",
                                        "cuMemcpyHtoD_v2_ptds",
                                        "cuLaunchKernel",
                                        "cuLaunchKernel_ptsz",
                                        "cuCtxCreate",
                                        "cuCtxCreate_v2",
                                        "cuCtxCreate_v3",
                                        "cuCtxCreate_v4",
                                        "cuStreamSynchronize_ptsz",
                                        "cuGetProcAddress",
                                        "cuGetProcAddress_v2",
                                        "cuEventDestroy",
                                        "cuEventDestroy_v2",
                                        "cuGraphCreate",
                                        "cuArrayCreate_v2",
                                        "cuMemFree",
                                        "cuMemFree_v2",
                                        "cuDeviceGetUuid_v2",
                                        "cuGetExportTable"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (!dlsym(self, names[i]))
            printf("FAILED: %s is not exported\n", names[i]), check_failed = 1;
    }
    EXPECT(resolve("cuMemAlloc", 3020, 0) != resolve("cuMemAlloc", 2000, 0));
    EXPECT(resolve("cuCtxSynchronize", 12000, 0) != resolve("cuCtxSynchronize", 13000, 0));
    EXPECT(resolve("cuGetProcAddress", 11030, 0) != resolve("cuGetProcAddress", 12000, 0));
    EXPECT(resolve("cuStreamSynchronize", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) !=
           resolve("cuStreamSynchronize", 7000, 0));
    EXPECT(resolve("cuStreamSynchronize", 7000,
                   CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ==
           resolve("cuStreamSynchronize", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
    EXPECT(resolve("cuNoSuchFunction", 13000, 0) == NULL);
    EXPECT(resolve("cuLibraryLoadData", 11000, 0) == NULL);
    EXPECT(resolve("", 0, 0) == NULL);

    CUresult (*mem_alloc)(CUdeviceptr *, size_t) = resolve("cuMemAlloc", 13000, 0);
    CUresult (*copy)(void *, CUdeviceptr, size_t) = dlsym(self, "cuMemcpyDtoH_v2");
    CUresult (*memset32)(CUdeviceptr, unsigned, size_t) =
        resolve("cuMemsetD32", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    CUdeviceptr counter = 0;
    unsigned value = 0;
    OK(mem_alloc(&counter, 4));
    OK(memset32(counter, 8, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, CU_STREAM_PER_THREAD, &counter));
    OK(copy(&value, counter, 4));
    EXPECT(value == 9);
    return check_failed;
}
