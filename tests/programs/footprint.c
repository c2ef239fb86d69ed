// How much resident memory the driver library adds to a program, from before it is loaded to after work of
// all kinds.
//
// suite: footprint
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "driver.h"

static size_t resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages = 0;
    if (!file || fscanf(file, "%*s %zu", &pages) != 1)
        exit(2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

// The program is not linked with the driver: these stand in for what check.h and driver.h call.
static void *self;
#define RESOLVE(name)          RESOLVE_SYMBOL(name) // cuda.h renames some
#define RESOLVE_SYMBOL(symbol) ((__typeof__(&symbol))dlsym(self, #symbol))

CUresult cuGetErrorName(CUresult error, const char **text) {
    return RESOLVE(cuGetErrorName)(error, text);
}

int main(void) {
    enum { LAUNCHES = 20000 };
    unsigned value = 0;
    CUfunction function;
    CUdeviceptr counter;
    const size_t before = resident();
    self = dlopen("libcuda.so.1", RTLD_NOW);
    if (!self)
        return 2;
    QUIET(RESOLVE(cuInit)(0));
    QUIET(RESOLVE(cuDeviceGet)(&device, 0));
    QUIET(RESOLVE(cuDevicePrimaryCtxRetain)(&context, device));
    QUIET(RESOLVE(cuCtxSetCurrent)(context));
    QUIET(RESOLVE(cuModuleLoadData)(&module, kernels_ptx));
    QUIET(RESOLVE(cuModuleGetFunction)(&function, module, "count_up"));
    QUIET(RESOLVE(cuMemAlloc)(&counter, 4));
    QUIET(RESOLVE(cuMemsetD32)(counter, 0, 1));
    for (int i = 0; i < LAUNCHES; i++)
        QUIET(RESOLVE(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&counter}, NULL));
    QUIET(RESOLVE(cuMemcpyDtoH)(&value, counter, 4));
    EXPECT(value == LAUNCHES);
    printf("added %zu\n", resident() - before);
    return check_failed;
}
