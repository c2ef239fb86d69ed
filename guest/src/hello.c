#include "hello.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices.h"
#include "handshake.h"
#include "log.h"
#include "operations.h"
#include "portion.h"
#include "program.h"
#include "resume.h"

static void copy_text(char *field, size_t size, const char *text) {
    if (text != NULL) {
        memcpy(field, text, strnlen(text, size));
    }
}

/* "2GiB", "512M", "1000000": CUDA programs' users write sizes in all three ways. */
static uint64_t parse_size(const char *text) {
    if (text == NULL || *text == '\0') {
        return 0;
    }
    char *end;
    double value = strtod(text, &end);
    while (*end == ' ') {
        end++;
    }
    static const char units[] = "kmgt";
    const char *unit = *end == '\0' ? NULL : strchr(units, *end | 0x20);
    uint64_t base = unit != NULL && end[1] == 'B' ? 1000 : 1024;
    uint64_t factor = 1;
    for (const char *u = units; unit != NULL && u <= unit; u++) {
        factor *= base;
    }
    if (value < 0 || (*end != '\0' && unit == NULL)) {
        gf_error("GPUFERRY_MEMORY=%s is not a size: write for example 2GiB. Asking for the default.", text);
        return 0;
    }
    return (uint64_t)(value * (double)factor);
}

bool gf_hello_fill(struct gf_hello *hello, const struct gf_credential *credential) {
    *hello = (struct gf_hello){.version = GF_PROTOCOL_VERSION, .pid = (uint32_t)getpid()};
    hello->devices = gf_devices_wanted();
    hello->flags = gf_resume_wanted() ? GF_HELLO_RESUMABLE : 0;
    hello->memory = parse_size(getenv("GPUFERRY_MEMORY"));
    bool named = credential->tenant[0] != '\0';
    copy_text(hello->tenant, sizeof hello->tenant, named ? credential->tenant : getenv("GPUFERRY_TENANT"));
    copy_text(hello->function, sizeof hello->function, getenv("GPUFERRY_FUNCTION"));
    char path[1024];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    const char *slash = strrchr(path, '/');
    copy_text(hello->program, sizeof hello->program, slash != NULL ? slash + 1 : path);
    return gf_random_bytes(hello->nonce, sizeof hello->nonce);
}

/* A number of seconds in the environment, less those that are spent; what the wire carries are units of which
 * a second has `scale`. */
static bool add_seconds(struct gf_extensions *extensions, uint16_t kind, const char *name, double scale,
                        double spent) {
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        return true;
    }
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0' || !(value > 0 && value * scale < UINT32_MAX)) {
        gf_error("%s=%s is not a number of seconds", name, text);
        return false;
    }
    value = value > spent ? value - spent : 0;
    uint32_t units = (uint32_t)(value * scale) + (value * scale < 1);
    return gf_extension_add(extensions, kind, &units, sizeof units);
}

bool gf_hello_extend(struct gf_extensions *extensions, const struct gf_credential *credential,
                     const struct gf_queue *queue) {
    const char *labels = getenv("GPUFERRY_LABELS");
    return gf_program_add(extensions) && gf_portion_add(extensions) &&
           (credential->kind != GF_BY_TICKET ||
            gf_extension_add(extensions, GF_EXTENSION_TICKET, credential->ticket, credential->ticket_size)) &&
           (labels == NULL || labels[0] == '\0' ||
            gf_extension_add(extensions, GF_EXTENSION_LABELS, labels, strlen(labels))) &&
           add_seconds(extensions, GF_EXTENSION_MAX_WAIT, "GPUFERRY_MAX_WAIT", 1000, gf_queue_spent(queue)) &&
           add_seconds(extensions, GF_EXTENSION_WALL_LIMIT, "GPUFERRY_WALL_LIMIT", 1, 0) &&
           add_seconds(extensions, GF_EXTENSION_IDLE_LIMIT, "GPUFERRY_IDLE_LIMIT", 1, 0);
}
