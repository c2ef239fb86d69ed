/* The simulated devices. A CUdevice is the index of a visible device. */
#pragma once
#include "config.h"
#include <pthread.h>

struct sim_context;

struct sim_device {
    int ordinal; /* among the visible */
    int machine_ordinal;
    CUuuid uuid;
    uint64_t memory;
    _Atomic uint64_t memory_used;
    _Atomic uint64_t memory_parting; /* not used any more, and not free yet: who needs it waits */
    _Atomic int error;               /* the sticky CUresult of all its contexts, until none is left */
    struct sim_context *primary;     /* lives as long as the process; active while retained */
    struct sim_pool *default_pool;
    _Atomic uint64_t current_pool; /* handle */
};

/* Its place in sets of devices. */
static inline uint64_t sim_device_bit(const struct sim_device *device) {
    return UINT64_C(1) << device->ordinal;
}

/* The limits that launch validation and occupancy use, as attributes report them; others are the card's. */
enum {
    SIM_WARP = 32,
    SIM_MAX_THREADS_PER_BLOCK = 1024,
    SIM_REGISTERS_PER_SM = 65536,
    SIM_SHARED_PER_BLOCK = 48 * 1024,
    SIM_SHARED_RESERVED = 1024, /* per block, by the system */
    SIM_TOTAL_CONST = 64 * 1024,
    SIM_MAX_GRID_Y = 65535,
    SIM_MAX_GRID_Z = 65535,
    SIM_MAX_BLOCK_Z = 64,
    SIM_PITCH_ALIGNMENT = 512,
    SIM_GRANULARITY = 2 << 20,
};
#define SIM_MAX_GRID_X 0x7fffffff
#define SIM_MAX_PITCH  0x7fffffff
#define SIM_MAX_WINDOW (128 << 20) /* bytes of an access policy window */

/* Called by cuInit, which makes their contexts and pools. */
void sim_devices_start(void);
int sim_device_count(void);
struct sim_device *sim_device_at(CUdevice ordinal); /* NULL if there is no such device */
CUresult sim_device_attribute(const struct sim_device *device, CUdevice_attribute attribute, int *value);
/* Takes from the device's memory; false when there is not enough. */
bool sim_device_charge(struct sim_device *device, uint64_t bytes);
void sim_device_refund(struct sim_device *device, uint64_t bytes);
/* Gives back what is not free before `sim_device_parted`, later (later.h). */
void sim_device_part(struct sim_device *device, uint64_t bytes);
void sim_device_parted(struct sim_device *device, uint64_t bytes);
