// NVML knows the device of a program by what the driver calls it, wherever the program is.
#include "driver.h"
#include "rounds.h"

#include <dlfcn.h>

static int (*by_place)(const char *, void **), (*uuid_of)(void *, char *, unsigned);

static void load(void) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    EXPECT(nvml != NULL);
    int (*init)(void) = (int (*)(void))(uintptr_t)dlsym(nvml, "nvmlInit_v2");
    by_place = (int (*)(const char *, void **))(uintptr_t)dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
    uuid_of = (int (*)(void *, char *, unsigned))(uintptr_t)dlsym(nvml, "nvmlDeviceGetUUID");
    EXPECT(init() == 0);
}

// The device's handle by its place on the bus, and the UUID by that.
static void find(void) {
    char place[32], told[96] = "", wanted[96] = "GPU-";
    void *handle = NULL;
    CUuuid uuid;
    size_t at = strlen(wanted);
    OK(cuDeviceGetPCIBusId(place, sizeof place, device));
    OK(cuDeviceGetUuid(&uuid, device));
    for (int i = 0; i < 16; i++)
        at += (size_t)sprintf(wanted + at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                              (unsigned char)uuid.bytes[i]);
    EXPECT(by_place(place, &handle) == 0 && uuid_of(handle, told, sizeof told) == 0);
    EXPECT(strcmp(told, wanted) == 0);
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    start();
    CUdeviceptr memory = allocate(4096);
    show_pointer("start", "memory", memory);
    load();
    for (int round = 1; round <= rounds; round++) {
        begin_round(round);
        find();
        expect_it_still_works();
    }
    show_pointer("end", "memory", memory);
    return check_failed;
}
