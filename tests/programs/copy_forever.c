// Copies without end until it is killed; "copying" on stdout says that it has begun.
//
// suite: killed
#include "driver.h"

int main(void) {
    const size_t bytes = (size_t)128 << 20;
    unsigned *host = malloc(bytes);
    CUdeviceptr memory, counter;
    start();
    memset(host, 1, bytes);
    OK(cuMemAlloc(&memory, bytes));
    OK(cuMemAlloc(&counter, 4));
    OK(cuMemsetD32(counter, 1, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(host, counter, 4));
    EXPECT(host[0] == 2);
    if (check_failed)
        return 1;
    puts("copying");
    fflush(stdout);
    for (;;) {
        QUIET(cuMemcpyHtoD(memory, host, bytes));
        QUIET(cuMemcpyDtoH(host, memory, bytes));
    }
}
