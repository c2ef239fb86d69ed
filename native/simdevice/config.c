#include "config.h"
#include "driver_interop/asked.h"
#include "driver_interop/visible.h"
#include "log.h"
#include "variance.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define GIB         0x1p30
#define MEMORY_UNIT (UINT64_C(2) << 20) /* of an instance */

static struct sim_config config;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void refuse(const char *name, const char *value, const char *expected) {
    sim_message(SIM_LOG_ERROR, "%s=%s: expected %s", name, value, expected);
    config.error = CUDA_ERROR_INVALID_VALUE;
}

static long read_integer(const char *name, long minimum, long maximum, long otherwise, const char *expected) {
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < minimum || value > maximum) {
        refuse(name, text, expected);
        return otherwise;
    }
    return value;
}

static uint64_t read_size(const char *name, uint64_t otherwise) {
    const uint64_t smallest = UINT64_C(1) << 20, largest = UINT64_C(1) << 44;
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    uint64_t bytes;
    if (gf_asked_size(text, &bytes) && bytes >= smallest && bytes <= largest)
        return bytes;
    refuse(name, text, "a size from 1MiB to 16TiB, for example 8GiB");
    return otherwise;
}

static void read_compute_capability(void) {
    const char *text = getenv("GPUFERRY_SIM_CC");
    config.cc_major = 8;
    config.cc_minor = 0;
    if (!text || !*text)
        return;
    int major, minor, length = 0;
    if (sscanf(text, "%d.%d%n", &major, &minor, &length) != 2 || text[length] || major < 5 || major > 12 ||
        minor < 0 || minor > 9) {
        refuse("GPUFERRY_SIM_CC", text, "a compute capability from 5.0 to 12.9, for example 8.0");
        return;
    }
    config.cc_major = major;
    config.cc_minor = minor;
}

static void make_uuid(int number, CUuuid *uuid) {
    /* splitmix64: stable, and different from the first digit on, so that a short prefix names one device */
    for (int half = 0; half < 2; half++) {
        uint64_t x = ((uint64_t)number * 2 + (uint64_t)half + 1) * UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        x ^= x >> 31;
        memcpy(uuid->bytes + half * 8, &x, 8);
    }
    uuid->bytes[6] = (char)((uuid->bytes[6] & 0x0f) | 0x80); /* an RFC 9562 version 8 UUID */
    uuid->bytes[8] = (char)((uuid->bytes[8] & 0x3f) | 0x80);
}

void sim_device_uuid(int machine_ordinal, CUuuid *uuid) {
    make_uuid(config.instances ? SIM_MAX_DEVICES + machine_ordinal : machine_ordinal, uuid);
}

void sim_device_uuid_text(int machine_ordinal, char text[SIM_UUID_TEXT]) {
    CUuuid uuid;
    sim_device_uuid(machine_ordinal, &uuid);
    gf_uuid_text((const uint8_t *)uuid.bytes, config.instances > 0, text);
}

int sim_device_whole(int machine_ordinal) {
    return config.instances ? machine_ordinal / config.instances : machine_ordinal;
}

void sim_whole_uuid_text(int device, char text[SIM_UUID_TEXT]) {
    CUuuid uuid;
    make_uuid(device, &uuid);
    gf_uuid_text((const uint8_t *)uuid.bytes, false, text);
}

void sim_device_name(bool whole, char text[SIM_NAME_TEXT]) {
    int at = snprintf(text, SIM_NAME_TEXT, "gpuferry simulated device");
    if (config.instances &&
        !whole) /* its share of seven slices, and of the memory, as NVIDIA names profiles */
        snprintf(text + at, SIM_NAME_TEXT - (size_t)at, " MIG %dg.%.0fgb",
                 SIM_MAX_INSTANCES / config.instances, ceil((double)config.memory / GIB));
}

static void read_visible_devices(void) {
    struct gf_visible_device devices[SIM_MAX_DEVICES];
    const int count = config.device_count * (config.instances ? config.instances : 1);
    for (int i = 0; i < count; i++) {
        CUuuid uuid;
        sim_device_uuid(i, &uuid);
        devices[i] =
            (struct gf_visible_device){.pci_bus = sim_device_whole(i) + 1, .instance = config.instances > 0};
        memcpy(devices[i].uuid, uuid.bytes, sizeof devices[i].uuid);
    }
    config.visible_count = gf_visible_devices(devices, count, config.visible);
}

static void read_instances(void) {
    config.instances =
        (int)read_integer("GPUFERRY_SIM_MIG", 0, SIM_MAX_INSTANCES, 0, "a number of instances from 0 to 7");
    if (config.instances * config.device_count > SIM_MAX_DEVICES) {
        refuse("GPUFERRY_SIM_MIG", getenv("GPUFERRY_SIM_MIG"), "64 instances on all devices at most");
        config.instances = 0;
    }
    if (config.instances)
        config.memory = config.memory / (uint64_t)config.instances / MEMORY_UNIT * MEMORY_UNIT;
}

static void read_code(void) {
    const char *text = getenv("GPUFERRY_SIM_CODE");
    config.skip_code = text && strcmp(text, "skip") == 0;
    if (text && *text && !config.skip_code && strcmp(text, "run") != 0)
        refuse("GPUFERRY_SIM_CODE", text, "run or skip");
}

static void read_loads(void) {
    const char *text = getenv("GPUFERRY_SIM_LOADS");
    config.loads_wait = text && strcmp(text, "wait") == 0;
    if (text && *text && !config.loads_wait && strcmp(text, "free") != 0)
        refuse("GPUFERRY_SIM_LOADS", text, "free or wait");
}

static void read_placing(void) {
    const char *text = getenv("GPUFERRY_SIM_VARIABLES");
    if (!text || !*text || strcmp(text, "image") == 0)
        config.placing = SIM_PLACED_BY_IMAGE;
    else if (strcmp(text, "layout") == 0)
        config.placing = SIM_PLACED_BY_LAYOUT;
    else if (strcmp(text, "process") == 0)
        config.placing = SIM_PLACED_BY_PROCESS;
    else
        refuse("GPUFERRY_SIM_VARIABLES", text, "image, layout or process");
}

static void read_turns(void) {
    const char *folder = getenv("GPUFERRY_SIM_TURNS");
    if (!folder || !*folder)
        return;
    if (access(folder, W_OK | X_OK) != 0)
        refuse("GPUFERRY_SIM_TURNS", folder, "a folder in which files can be made");
    else
        config.turns = folder;
}

static void read_all(void) {
    const char *level = getenv("GPUFERRY_SIM_LOG");
    if (level && strcmp(level, "info") == 0)
        sim_message_set_level(SIM_LOG_INFO);
    else if (level && strcmp(level, "debug") == 0)
        sim_message_set_level(SIM_LOG_DEBUG);
    else if (level && *level && strcmp(level, "0") != 0)
        refuse("GPUFERRY_SIM_LOG", level, "0, info or debug");
    sim_message_set_copy((int)read_integer("GPUFERRY_SIM_MESSAGES", 0, 1 << 20, -1, "an open descriptor"));
    if (!read_integer("GPUFERRY_SIM_STDERR", 0, 1, 1, "0 or 1"))
        sim_message_only_copy();
    sim_variance_set(
        (uint64_t)read_integer("GPUFERRY_SIM_VARIANCE", 0, INT32_MAX, 0, "a seed, or 0 for none"));
    const long apart = (long)sim_choice(SIM_OPEN_PEERS, 2), soiled = (long)sim_choice(SIM_OPEN_CONTENT, 2);
    config.peers = (int)read_integer("GPUFERRY_SIM_PEERS", 0, 1, !apart, "0 or 1");
    config.check = (int)read_integer("GPUFERRY_SIM_CHECK", 0, 1, 0, "0 or 1");
    config.dirty = (int)read_integer("GPUFERRY_SIM_DIRTY", 0, 1, soiled, "0 or 1");
    config.device_count =
        (int)read_integer("GPUFERRY_SIM_DEVICES", 0, SIM_MAX_DEVICES, 1, "a number of devices from 0 to 64");
    config.driver_version =
        (int)read_integer("GPUFERRY_SIM_DRIVER_VERSION", 11000, 99990, CUDA_VERSION,
                          "a driver version as cuDriverGetVersion gives it, for example 13050");
    config.memory = read_size("GPUFERRY_SIM_MEMORY", UINT64_C(8) << 30);
    config.output_most = read_size("GPUFERRY_SIM_OUTPUT", UINT64_MAX);
    read_code();
    read_loads();
    config.launch_blocking = gf_asked_launch_blocking();
    config.loading = gf_asked_loading(sim_choice(SIM_OPEN_LOADING, 2) == 1 ? CU_MODULE_EAGER_LOADING
                                                                           : CU_MODULE_LAZY_LOADING);
    read_placing();
    read_turns();
    read_compute_capability();
    read_instances();
    read_visible_devices();
}

const struct sim_config *sim_config_get(void) {
    pthread_once(&once, read_all);
    return &config;
}
