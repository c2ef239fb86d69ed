/* The settings (GPUFERRY_SIM_*, CUDA_VISIBLE_DEVICES), read once. */
#pragma once
#include "sim.h"

#define SIM_MAX_DEVICES   64
#define SIM_UUID_TEXT     48
#define SIM_NAME_TEXT     96
#define SIM_MAX_INSTANCES 7 /* as many as NVIDIA's GPUs can be divided into */

/* Where variables of an image lie (GPUFERRY_SIM_VARIABLES). */
enum sim_placing {
    SIM_PLACED_BY_IMAGE,   /* the same image has the same places in every process */
    SIM_PLACED_BY_LAYOUT,  /* places follow from where the process has its libraries */
    SIM_PLACED_BY_PROCESS, /* each process has others */
};

struct sim_config {
    CUresult error; /* what cuInit answers because of a setting that makes no sense */
    int driver_version;
    int cc_major, cc_minor;
    uint64_t memory;      /* bytes of each device that CUDA shows */
    uint64_t output_most; /* bytes that kernels printed and nobody took yet */
    const char *turns;    /* a folder: processes that share a device take turns; NULL: they do not */
    int peers;            /* whether devices reach each other's memory */
    int check;            /* whether kernels are held to their own memory */
    enum sim_placing placing;
    bool skip_code;       /* kernels are loaded and never run */
    bool loads_wait;      /* images are loaded alone, and when nothing is under way */
    bool launch_blocking; /* a launch returns when the kernel has run */
    CUmoduleLoadingMode loading;
    int dirty;        /* whether new memory begins with something other than zeros */
    int device_count; /* of the machine, visible or not */
    int instances;    /* into which each is divided (MIG), and which CUDA shows instead; 0: whole */
    int visible[SIM_MAX_DEVICES]; /* the machine's ordinal of each visible device, or instance */
    int visible_count;
};

const struct sim_config *sim_config_get(void);
/* Of a device that CUDA shows, which is an instance where devices are divided. */
void sim_device_uuid(int machine_ordinal, CUuuid *uuid);
void sim_device_uuid_text(int machine_ordinal, char text[SIM_UUID_TEXT]); /* "GPU-…", "MIG-…" */
void sim_device_name(bool whole, char text[SIM_NAME_TEXT]);               /* of any: they are alike */
int sim_device_whole(int machine_ordinal);                      /* the device that it is a part of */
void sim_whole_uuid_text(int device, char text[SIM_UUID_TEXT]); /* "GPU-…" */
