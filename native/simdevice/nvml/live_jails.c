#include "live_jails.h"
#include "../config.h"
#include "live_file.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS UINT64_C(100000000) /* between looks at who lives */

enum { JAILS = 1024 };

static struct jail {
    uint64_t owner;
    int file;
    bool lives;
    uint64_t busy_ns[LIVE_DEVICES];
} jails[JAILS];
static unsigned count;
static uint64_t looked_ns, gone_ns[LIVE_DEVICES];

static struct jail *find(uint64_t owner) {
    for (unsigned i = 0; i < count; i++)
        if (jails[i].owner == owner)
            return &jails[i];
    return NULL;
}

static void note(int folder, const char *name) {
    char *end;
    uint64_t owner = strtoull(name, &end, 10);
    if (!owner || *end || live_owner(live_owner_pid(owner)) != owner)
        return;
    struct jail *jail = find(owner);
    if (!jail && count < JAILS) {
        int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (file < 0)
            return;
        jail = &jails[count++];
        *jail = (struct jail){.owner = owner, .file = file};
    }
    if (jail)
        jail->lives = true;
}

static void forget(struct jail *jail) {
    for (int device = 0; device < LIVE_DEVICES; device++)
        gone_ns[device] += jail->busy_ns[device];
    close(jail->file);
    *jail = jails[--count];
}

static void look(uint64_t now) {
    if (looked_ns && now - looked_ns < LOOK_NS)
        return;
    looked_ns = now;
    for (unsigned i = 0; i < count; i++)
        jails[i].lives = false;
    char path[PATH_MAX];
    DIR *folder = live_jails_path(path) ? opendir(path) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        note(dirfd(folder), entry->d_name);
    if (folder)
        closedir(folder);
    for (unsigned i = count; i-- > 0;)
        if (!jails[i].lives)
            forget(&jails[i]);
}

static uint64_t word_at(const struct jail *jail, size_t offset) {
    uint64_t word = 0;
    return pread(jail->file, &word, sizeof word, (off_t)offset) == sizeof word ? word : 0;
}

unsigned live_jails(int device, uint64_t now, struct live_figures *figures, unsigned most) {
    const size_t ended = offsetof(struct live_file, devices) + (size_t)device * sizeof(uint64_t[2]);
    const size_t mine = offsetof(struct live_file, processes) + (size_t)device * sizeof(uint64_t[2]);
    const uint64_t memory_most = sim_config_get()->memory;
    look(now);
    for (unsigned i = 0; i < count; i++) {
        uint64_t busy = word_at(&jails[i], ended), memory = word_at(&jails[i], mine);
        if (busy > jails[i].busy_ns[device])
            jails[i].busy_ns[device] = busy;
        if (i < most)
            figures[i] = (struct live_figures){live_owner_pid(jails[i].owner),
                                               memory < memory_most ? memory : memory_most,
                                               word_at(&jails[i], mine + sizeof(uint64_t))};
    }
    return count < most ? count : most;
}

uint64_t live_jails_busy_ns(int device) {
    uint64_t busy = gone_ns[device];
    for (unsigned i = 0; i < count; i++)
        busy += jails[i].busy_ns[device];
    return busy;
}
