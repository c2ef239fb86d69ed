// 320 MiB to the device and back, in single calls: more than a guest that can reconnect keeps.
#include "driver.h"

int main(void) {
    const size_t bytes = (size_t)320 << 20, words = bytes / 8;
    uint64_t *host = malloc(bytes);
    CUdeviceptr memory;
    start();
    for (size_t i = 0; i < words; i++)
        host[i] = i * 0x9e3779b97f4a7c15u;
    const uint64_t sent = check_hash(host, bytes);
    OK(cuMemAlloc(&memory, bytes));
    OK(cuMemcpyHtoD(memory, host, bytes));
    memset(host, 0, bytes);
    OK(cuMemcpyDtoH(host, memory, bytes));
    EXPECT(check_hash(host, bytes) == sent);
    digest("all of it", host, bytes);
    OK(cuMemFree(memory));
    free(host);
    return check_failed;
}
