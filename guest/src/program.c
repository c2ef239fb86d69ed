#include "program.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handshake.h"
#include "operations.h"
#include "session.h"

#define NAME      "GPUFERRY_PROGRAM="
#define NAME_SIZE (sizeof NAME - 1)

extern char **environ;

static uint8_t known[GF_PROGRAM_SIZE];
static bool is_known, added;
static char entry[NAME_SIZE + 2 * GF_PROGRAM_SIZE + 1];
static char **environment; /* with the entry */

static int digit(char letter) {
    const char *digits = "0123456789abcdef", *found = letter != '\0' ? strchr(digits, letter) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static bool read_entry(const char *text) {
    for (size_t i = 0; i < sizeof known; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0) {
            return false;
        }
        known[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * sizeof known] == '\0';
}

static bool has_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    while (tasks != NULL && readdir(tasks) != NULL) {
        count++;
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return count != 3; /* itself, ".", and ".." */
}

/* By hand: a shell has a setenv of its own, which is not ready for calls before its main. */
static void enter_environment(void) {
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    environment = calloc(count + 2, sizeof *environment);
    if (environment == NULL) {
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], NAME, NAME_SIZE) != 0) {
            environment[kept++] = environ[i];
        }
    }
    for (size_t i = 0; i < sizeof known; i++) {
        entry[NAME_SIZE + 2 * i] = "0123456789abcdef"[known[i] >> 4];
        entry[NAME_SIZE + 2 * i + 1] = "0123456789abcdef"[known[i] & 15];
    }
    memcpy(entry, NAME, NAME_SIZE);
    environment[kept] = entry;
    environ = environment;
}

/* When the library is loaded, before a preloading program has threads: what a child is started with must say
 * whose child it is. Later it is too late, for anybody may be reading the environment. */
__attribute__((constructor)) static void at_load(void) {
    const char *text = getenv("GPUFERRY_PROGRAM");
    is_known = text != NULL && read_entry(text);
    if (!is_known && getenv("GPUFERRY_MONITOR") != NULL && !has_threads()) {
        is_known = gf_random_bytes(known, sizeof known);
        if (is_known) {
            enter_environment();
        }
    }
}

bool gf_program_add(struct gf_extensions *extensions) {
    /* Made this late it is known to children that are forked, and to no others. */
    is_known = is_known || gf_random_bytes(known, sizeof known);
    added = is_known && gf_operations_extended();
    return !added || gf_extension_add(extensions, GF_EXTENSION_PROGRAM, known, sizeof known);
}

bool gf_program_take(const char *data, size_t size) {
    struct gf_membership membership;
    if (!added || size != sizeof membership) {
        return size == 0; /* a server that says nothing of it shares nothing */
    }
    memcpy(&membership, data, sizeof membership);
    atomic_store(&gf_session.shared, membership.shared != 0);
    return true;
}
