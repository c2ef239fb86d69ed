#include "visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void gf_uuid_text(const uint8_t uuid[16], bool instance, char text[GF_UUID_TEXT]) {
    int at = snprintf(text, GF_UUID_TEXT, instance ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++) {
        at += snprintf(text + at, GF_UUID_TEXT - (size_t)at,
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
}

static bool is_behind(const struct gf_visible_device *one, const struct gf_visible_device *other) {
    return one->pci_domain != other->pci_domain ? one->pci_domain > other->pci_domain
           : one->pci_bus != other->pci_bus     ? one->pci_bus > other->pci_bus
                                                : one->pci_device > other->pci_device;
}

/* All devices: in CUDA's own order, or in that of the bus, where CUDA_DEVICE_ORDER says so. */
static void number(const struct gf_visible_device *devices, int count, int numbered[GF_VISIBLE_MAX]) {
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool by_bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0;
    for (int i = 0; i < count; i++) {
        int at = i;
        while (by_bus && at > 0 && is_behind(&devices[numbered[at - 1]], &devices[i])) {
            numbered[at] = numbered[at - 1];
            at--;
        }
        numbered[at] = i;
    }
}

/* A UUID, or the beginning of one that no other device has. -1: it names no device, or several. */
static int find_uuid(const char *text, size_t size, const struct gf_visible_device *devices, int count) {
    int found = -1;
    for (int i = 0; i < count; i++) {
        char uuid[GF_UUID_TEXT];
        gf_uuid_text(devices[i].uuid, devices[i].instance, uuid);
        if (size > strlen(uuid) || strncasecmp(text, uuid, size) != 0) {
            continue;
        }
        if (found >= 0) {
            return -1;
        }
        found = i;
    }
    return found;
}

/* The device that one entry of the list names; -1: none. */
static int find(const char *text, size_t size, const struct gf_visible_device *devices, int count,
                const int numbered[GF_VISIBLE_MAX]) {
    while (size > 0 && *text == ' ') {
        text++;
        size--;
    }
    while (size > 0 && text[size - 1] == ' ') {
        size--;
    }
    if (size >= 4 && (strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "MIG-", 4) == 0)) {
        return find_uuid(text, size, devices, count);
    }
    long value = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || value > GF_VISIBLE_MAX) {
            return -1;
        }
        value = value * 10 + (text[i] - '0');
    }
    return size > 0 && value < count ? numbered[value] : -1;
}

static int list_devices(const struct gf_visible_device *devices, int count, int visible[GF_VISIBLE_MAX]) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int numbered[GF_VISIBLE_MAX], found = 0;
    number(devices, count, numbered);
    if (list == NULL) {
        memcpy(visible, numbered, (size_t)count * sizeof *visible);
        return count;
    }
    for (;;) {
        size_t size = strcspn(list, ",");
        int device = find(list, size, devices, count, numbered);
        if (device < 0) {
            return found; /* the first entry that names none ends the list */
        }
        for (int i = 0; i < found; i++) {
            if (visible[i] == device) {
                return 0; /* a device that is named twice: CUDA shows none at all */
            }
        }
        visible[found++] = device;
        if (list[size] == '\0') {
            return found;
        }
        list += size + 1;
    }
}

int gf_visible_devices(const struct gf_visible_device *devices, int count, int visible[GF_VISIBLE_MAX]) {
    int found = list_devices(devices, count, visible);
    return found > 1 && devices[visible[0]].instance ? 1 : found;
}
