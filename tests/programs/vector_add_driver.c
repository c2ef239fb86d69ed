// A vector sum through the driver API: module from PTX text, copies both ways, one launch.
#include "driver.h"

int main(void) {
    enum { COUNT = 100003 };
    static float a[COUNT], b[COUNT], sum[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = 0.5f * (float)i;
        b[i] = 1.0f / (float)(i + 1);
    }
    start();
    CUdeviceptr da, db, dsum;
    OK(cuMemAlloc(&da, sizeof a));
    OK(cuMemAlloc(&db, sizeof b));
    OK(cuMemAlloc(&dsum, sizeof sum));
    OK(cuMemcpyHtoD(da, a, sizeof a));
    OK(cuMemcpyHtoD(db, b, sizeof b));
    unsigned count = COUNT;
    OK(LAUNCH(kernel("add"), (COUNT + 255) / 256, 256, NULL, &da, &db, &dsum, &count));
    OK(cuMemcpyDtoH(sum, dsum, sizeof sum));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += sum[i] != a[i] + b[i];
    EXPECT(wrong == 0);
    digest("sum", sum, sizeof sum);
    OK(cuMemFree(da));
    OK(cuMemFree(db));
    OK(cuMemFree(dsum));
    OK(cuModuleUnload(module));
    OK(cuDevicePrimaryCtxRelease(device));
    return check_failed;
}
