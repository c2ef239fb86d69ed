#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "driver_interop/visible.h"
#include "gpuferry/device_overrides.h"
#include "gpuferry/messages.h"
#include "log.h"
#include "session.h"

static int granted;                                    /* devices that the session has */
static struct gf_visible_device known[GF_DEVICES_MAX]; /* what the program knows them by */
static int visible[GF_VISIBLE_MAX];                    /* of them, by the program's numbers */

uint32_t gf_devices_wanted(void) {
    const char *text = getenv("GPUFERRY_GPUS");
    if (text == NULL || *text == '\0') {
        return 1;
    }
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > GF_DEVICES_MAX) {
        gf_error("GPUFERRY_GPUS=%s is not a number of GPUs from 1 to %d", text, GF_DEVICES_MAX);
        return 0;
    }
    return (uint32_t)value;
}

static void show(int number, const struct gf_device *device) {
    struct gf_device *shown = &gf_session.devices[number];
    *shown = *device;
    shown->name[sizeof shown->name - 1] = '\0';
#define OVERRIDE(attribute, value) shown->attributes[attribute] = (value);
    GF_ATTRIBUTE_OVERRIDES(OVERRIDE)
}

bool gf_devices_take(const struct gf_device *devices, const struct gf_device_link *links, int count) {
    for (int i = 0; i < count; i++) {
        const int32_t *attributes = devices[i].attributes;
        if (devices[i].attribute_count != GF_ATTRIBUTE_COUNT ||
            attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE] < 1) { /* by which others divide */
            return false;
        }
        known[i] = (struct gf_visible_device){.pci_domain = attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
                                              .pci_bus = attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
                                              .pci_device = attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID],
                                              .instance =
                                                  devices[i].name[sizeof devices[i].name - 1] == GF_INSTANCE};
        memcpy(known[i].uuid, devices[i].uuid, sizeof known[i].uuid);
    }
    granted = count;
    gf_session.device_count = gf_visible_devices(known, count, visible);
    for (int i = 0; i < gf_session.device_count; i++) {
        show(i, &devices[visible[i]]);
        for (int j = 0; count > 1 && j < gf_session.device_count; j++) {
            gf_session.links[i][j] = links[visible[i] * count + visible[j]];
        }
    }
    return true;
}

uint64_t gf_device_name(const void *uuid) {
    uint64_t halves[2];
    memcpy(halves, uuid, sizeof halves);
    return halves[0] ^ halves[1];
}

bool gf_device_is_hidden(uint64_t name) {
    bool hidden = false;
    for (int i = 0; i < granted; i++) {
        bool shown = false;
        for (int j = 0; j < gf_session.device_count; j++) {
            shown = shown || visible[j] == i;
        }
        hidden = hidden || (!shown && gf_device_name(known[i].uuid) == name);
    }
    return hidden;
}

void gf_devices_tell(void) {
    struct gf_req_sessionDevices request = {.count = (uint32_t)gf_session.device_count};
    bool otherwise = gf_session.device_count != granted;
    for (int i = 0; i < gf_session.device_count; i++) {
        request.order[i] = (uint8_t)visible[i];
        otherwise = otherwise || visible[i] != i;
    }
    if (otherwise && request.count > 0) {
        gf_send_struct(GF_OP_sessionDevices, &request);
    }
}

static bool is_shown(const struct gf_visible_device *device, const struct gf_look_device *shown) {
    bool is = false;
    for (int i = 0; i < granted && !is; i++) {
        is = memcmp(shown[i].uuid, device->uuid, sizeof device->uuid) == 0;
    }
    return is;
}

void gf_devices_keep(struct gf_devices *said) {
    struct gf_look_device *shown = (struct gf_look_device *)(said + 1);
    bool moved = false;
    for (int i = 0; said->device_count == (uint32_t)granted && i < granted; i++) {
        moved = moved || !is_shown(&known[i], shown);
    }
    for (int i = 0; moved && i < granted; i++) {
        memcpy(shown[i].uuid, known[i].uuid, sizeof known[i].uuid);
        shown[i].instance = known[i].instance;
        snprintf(shown[i].pci, sizeof shown[i].pci, "%08X:%02X:%02X.0", (unsigned)known[i].pci_domain,
                 (unsigned)known[i].pci_bus, (unsigned)known[i].pci_device);
    }
}
