/* libnvidia-ml.so.1 of the guest and of the simulated device: both answer from what is known of a few
 * devices, which `told.c` of either finds. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "nvml/types.h"

#define NV_TRY(expression)                                                                                   \
    do {                                                                                                     \
        nvmlReturn_t try_result_ = (expression);                                                             \
        if (try_result_ != NVML_SUCCESS) {                                                                   \
            return try_result_;                                                                              \
        }                                                                                                    \
    } while (0)

#define NV_REQUIRE(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            return NVML_ERROR_INVALID_ARGUMENT;                                                              \
        }                                                                                                    \
    } while (0)

enum { NV_DEVICES = 128, NV_PROCESSES = 2048 };

struct nv_system {
    unsigned device_count; /* whole ones; the handles of their instances, device by device, follow theirs */
    unsigned instances;    /* of each, in MIG mode; 0: they are not */
    int cuda_version;
    char driver_version[32]; /* empty: nobody says */
};

struct nv_device {
    unsigned index;
    unsigned instance; /* of a MIG instance its number in the device, from 1; 0: a whole device */
    char name[96], uuid[48], pci[32];
    uint64_t memory_total, memory_used;
    int major, minor;
    uint64_t peers;                      /* a bit for each device whose memory it reaches, by index */
    int utilization, temperature, power; /* per cent, degrees, milliwatts; -1: nobody says */
    int clock, memory_clock, clock_most, memory_clock_most; /* MHz; -1: nobody says */
    int pcie_generation, pcie_width, pcie_generation_most, pcie_width_most;
};

/* A handle is the address of one of these. */
struct nvmlDevice_st {
    char unused;
};
extern struct nvmlDevice_st nv_handles[NV_DEVICES];

/* As it is now; NVML_ERROR_UNINITIALIZED before nvmlInit. */
nvmlReturn_t nv_find_system(struct nv_system *system);
/* NVML_ERROR_GPU_IS_LOST of a device that is broken; what it is, is told all the same. */
nvmlReturn_t nv_find_device(nvmlDevice_t handle, struct nv_device *device);
/* The program's processes on a device: their number, of which at most `room` are stored. */
nvmlReturn_t nv_find_processes(nvmlDevice_t handle, nvmlProcessInfo_t *processes, unsigned room,
                               unsigned *count);
/* nvmlInit and nvmlShutdown. */
nvmlReturn_t nv_begin(void);
nvmlReturn_t nv_end(void);

nvmlReturn_t nv_unsupported(void);
/* To change the device: it is others' too. */
nvmlReturn_t nv_denied(void);
nvmlReturn_t nv_text(char *text, unsigned length, const char *value);
