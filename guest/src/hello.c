#include "hello.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices.h"
#include "driver_interop/asked.h"
#include "handshake.h"
#include "log.h"
#include "operations.h"
#include "portion.h"
#include "program.h"
#include "resume.h"

/* How many bytes the character has that begins there; 0: UTF-8 has none like it. */
static size_t character_size(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    size_t size = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < size; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool longer_than_needed = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool no_character = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90);
    return longer_than_needed || no_character ? 0 : size;
}

/* Whole characters, as many as fit. What somebody set and is none stays, and is refused with its name. */
static void copy_text(char *field, size_t size, const char *text) {
    size_t used = 0, more;
    for (; text != NULL && text[used] != '\0'; used += more) {
        more = character_size(text + used);
        more += more == 0;
        if (more > size - used) {
            break;
        }
        memcpy(field + used, text + used, more);
    }
}

/* A file's name is any bytes, and a server takes text alone. */
static void copy_file_name(char *field, size_t size, char *name) {
    for (size_t i = 0, more; name[i] != '\0'; i += more) {
        more = character_size(name + i);
        if (more == 0 || (unsigned char)name[i] < ' ' || name[i] == 0x7f) {
            name[i] = '?';
            more = 1;
        }
    }
    copy_text(field, size, name);
}

static uint64_t memory_wanted(void) {
    const char *text = getenv("GPUFERRY_MEMORY");
    uint64_t size = 0;
    if (text != NULL && *text != '\0' && !gf_asked_size(text, &size)) {
        gf_error("GPUFERRY_MEMORY=%s is not a size: write for example 2GiB. Asking for the default.", text);
        return 0;
    }
    return size;
}

bool gf_hello_fill(struct gf_hello *hello, const struct gf_credential *credential) {
    *hello = (struct gf_hello){.version = GF_PROTOCOL_VERSION, .pid = (uint32_t)getpid()};
    hello->devices = gf_devices_wanted();
    hello->flags = gf_resume_wanted() ? GF_HELLO_RESUMABLE : 0;
    hello->memory = memory_wanted();
    bool named = credential->tenant[0] != '\0';
    copy_text(hello->tenant, sizeof hello->tenant, named ? credential->tenant : getenv("GPUFERRY_TENANT"));
    copy_text(hello->function, sizeof hello->function, getenv("GPUFERRY_FUNCTION"));
    char path[1024];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    char *slash = strrchr(path, '/');
    copy_file_name(hello->program, sizeof hello->program, slash != NULL ? slash + 1 : path);
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
    double value = gf_asked_number(text, &end);
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
