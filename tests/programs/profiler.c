// cuProfiler*, which no header that the toolkit's runtime ships declares: there is no tool to start, and
// programs that bracket what they would measure go on.
#include <dlfcn.h>

#include "driver.h"

typedef CUresult (*bracket)(void);
typedef CUresult (*initialize)(const char *, const char *, int);

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *by_version = NULL;
    EXPECT(driver != NULL);
    bracket begin = (bracket)dlsym(driver, "cuProfilerStart"), end = (bracket)dlsym(driver, "cuProfilerStop");
    initialize configure = (initialize)dlsym(driver, "cuProfilerInitialize");
    EXPECT(begin != NULL && end != NULL && configure != NULL);
    if (check_failed)
        return check_failed;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, begin());
    FAILS(CUDA_ERROR_NOT_INITIALIZED, end());
    FAILS(CUDA_ERROR_NOT_SUPPORTED, configure("config", "output", 0));
    OK(cuInit(0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, begin());
    start();
    OK(cuGetProcAddress("cuProfilerStart", &by_version, 4000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    EXPECT(by_version != NULL);
    OK(begin());
    OK(begin());
    CUdeviceptr counter = allocate(4);
    unsigned value = 0;
    OK(cuMemsetD32(counter, 0, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 1);
    OK(end());
    OK(end());
    FAILS(CUDA_ERROR_NOT_SUPPORTED, configure("config", "output", 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, configure(NULL, "output", 7));
    return check_failed;
}
