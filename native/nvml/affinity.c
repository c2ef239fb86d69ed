/* Which of this machine's processors and memory are near a device: all of them, for it is behind a network.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml/nvml.h"

enum { BITS = sizeof(unsigned long) * CHAR_BIT };

/* As many bits of a set of `size` words as there is room for. */
static nvmlReturn_t tell_first(nvmlDevice_t device, long count, unsigned size, unsigned long *set,
                               nvmlAffinityScope_t scope) {
    struct nv_device found;
    NV_TRY(nv_find_device(device, &found));
    NV_REQUIRE(set != NULL && size > 0 && scope <= NVML_AFFINITY_SCOPE_SOCKET);
    memset(set, 0, size * sizeof *set);
    for (long i = 0; i < count && i < (long)size * BITS; i++) {
        set[i / BITS] |= 1ul << i % BITS;
    }
    return NVML_SUCCESS;
}

static long nodes(void) {
    long first = 0, last = 0;
    FILE *file = fopen("/sys/devices/system/node/online", "re");
    if (file != NULL) {
        if (fscanf(file, "%ld-%ld", &first, &last) < 2) {
            last = first;
        }
        fclose(file);
    }
    return last + 1;
}

/* The calling thread may run on each of them, as NVML would have it for such a device. */
static nvmlReturn_t run_anywhere(nvmlDevice_t device) {
    struct nv_device found;
    cpu_set_t all;
    NV_TRY(nv_find_device(device, &found));
    memset(&all, 0xff, sizeof all);
    return sched_setaffinity(0, sizeof all, &all) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

#pragma GCC visibility push(default)

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *set,
                                         nvmlAffinityScope_t scope) {
    return tell_first(device, nodes(), size, set, scope);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, unsigned long *set,
                                                 nvmlAffinityScope_t scope) {
    return tell_first(device, sysconf(_SC_NPROCESSORS_CONF), size, set, scope);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *set) {
    return nvmlDeviceGetCpuAffinityWithinScope(device, size, set, NVML_AFFINITY_SCOPE_NODE);
}

nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device) {
    return run_anywhere(device);
}

nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device) {
    return run_anywhere(device);
}
