/* Which devices a program sees, and in which order: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define GF_VISIBLE_MAX 64
#define GF_UUID_TEXT   48

/* What a device is called in CUDA_VISIBLE_DEVICES, besides its number. */
struct gf_visible_device {
    uint8_t uuid[16];
    int pci_domain, pci_bus, pci_device;
    bool instance; /* of a GPU in MIG mode: CUDA shows one of them to a program, and no other device */
};

/* "GPU-…", or of an instance "MIG-…", as nvidia-smi writes it. */
void gf_uuid_text(const uint8_t uuid[16], bool instance, char text[GF_UUID_TEXT]);
/* The places of the devices that the environment lets a program see, in its order; how many those are.
 * Devices come in the order in which CUDA counts them unasked; `count` is at most GF_VISIBLE_MAX. */
int gf_visible_devices(const struct gf_visible_device *devices, int count, int visible[GF_VISIBLE_MAX]);
