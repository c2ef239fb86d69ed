// Names and texts of errors; an unknown one is refused. How many there are each driver knows for itself.
#include "driver.h"

int main(void) {
    const char *name, *text;
    static char all[64 << 10];
    size_t length = 0;
    int known = 0;
    start();
    for (int error = 0; error <= 1000; error++) {
        if (cuGetErrorName((CUresult)error, &name) != CUDA_SUCCESS ||
            cuGetErrorString((CUresult)error, &text) != CUDA_SUCCESS)
            continue;
        length += (size_t)snprintf(all + length, sizeof all - length, "%d %s %s\n", error, name, text);
        known++;
        if (error % 100 < 4)
            printf("%d %s %s\n", error, name, text);
    }
    EXPECT(known > 90);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &name));
    EXPECT(strstr(all, "700 CUDA_ERROR_ILLEGAL_ADDRESS an illegal memory access was encountered\n") != NULL);
    CUdeviceptr memory = allocate(sizeof all);
    static char back[sizeof all];
    OK(cuMemcpyHtoD(memory, all, sizeof all));
    OK(cuMemcpyDtoH(back, memory, sizeof back));
    EXPECT(memcmp(all, back, sizeof all) == 0);
    return check_failed;
}
