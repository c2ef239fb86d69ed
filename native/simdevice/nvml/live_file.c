#include "live_file.h"
#include "wire/file_limit.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC         UINT64_C(0x314556494c4d4953) /* "SIMLIVE1" */
#define START_BITS    40
#define FIELDS_TO_GO  19 /* in /proc/PID/stat, from the state to the start time */
#define FOLDER_RIGHTS 0700
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define TRIES 3 /* to make the file anew: others may do so at the same time */

uint64_t live_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

uint64_t live_owner(int pid) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *field = strrchr(text, ')'); /* the name before it may hold anything */
    if (!field || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
        return 0;
    field += 2;
    for (int i = 0; i < FIELDS_TO_GO; i++) {
        field = strchr(field, ' ');
        if (!field)
            return 0;
        field++;
    }
    uint64_t started = strtoull(field, NULL, 10);
    return (uint64_t)pid << START_BITS | (started & ((UINT64_C(1) << START_BITS) - 1));
}

int live_owner_pid(uint64_t owner) {
    return (int)((owner & ~LIVE_CLAIMING) >> START_BITS);
}

/* In /tmp anyone could have made it first. */
static bool private_folder(const char *path) {
    struct stat status;
    return (mkdir(path, FOLDER_RIGHTS) == 0 || lstat(path, &status) == 0) && lstat(path, &status) == 0 &&
           S_ISDIR(status.st_mode) && status.st_uid == getuid() && (status.st_mode & 077) == 0;
}

static const char *chosen_path(void) {
    const char *chosen = getenv("GPUFERRY_SIM_STATS");
    return chosen && *chosen ? chosen : NULL;
}

static bool find_path(char path[PATH_MAX]) {
    const char *chosen = chosen_path();
    if (chosen)
        return snprintf(path, PATH_MAX, "%s", chosen) < PATH_MAX;
    char folder[PATH_MAX - 16];
    const char *runtime = getenv("GPUFERRY_RUNTIME_DIR"), *base = getenv("XDG_RUNTIME_DIR");
    int length = runtime && *runtime ? snprintf(folder, sizeof folder, "%s", runtime)
                 : base && *base     ? snprintf(folder, sizeof folder, "%s/gpuferry", base)
                                     : snprintf(folder, sizeof folder, "/tmp/gpuferry-%u", getuid());
    if (length >= (int)sizeof folder || !private_folder(folder))
        return false;
    snprintf(path, PATH_MAX, "%s/simdevice", folder);
    return true;
}

bool live_jails_path(char path[PATH_MAX]) {
    static const char suffix[] = ".jails";
    if (!find_path(path) || strlen(path) + sizeof suffix > PATH_MAX)
        return false;
    strcat(path, suffix);
    return true;
}

bool live_has_room(const void *start, size_t size) {
    size_t before = (uintptr_t)start % (size_t)sysconf(_SC_PAGESIZE);
    return madvise((char *)(uintptr_t)start - before, before + size, MADV_POPULATE_WRITE) == 0 ||
           errno != EFAULT;
}

/* `damaged`: it is a file of ours, and not one of these. */
static struct live_file *map_file(int fd, bool *damaged) {
    GF_FILE_LIMIT_FAILS;
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != getuid())
        return NULL;
    struct live_file *file;
    *damaged = status.st_size != 0 && status.st_size != sizeof *file;
    /* it is sparse: only the entries in use take room */
    if (*damaged || ftruncate(fd, sizeof *file) != 0)
        return NULL;
    file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return NULL;
    if (!live_has_room(file, offsetof(struct live_file, processes))) {
        munmap(file, sizeof *file);
        return NULL;
    }
    uint64_t magic = 0;
    if (atomic_compare_exchange_strong(&file->magic, &magic, MAGIC) || magic == MAGIC)
        return file;
    *damaged = true;
    munmap(file, sizeof *file);
    return NULL;
}

/* Under its lock, so that nobody removes what another has just made in its place. */
static void remove_file(const char *path, int fd) {
    struct stat ours, there;
    if (flock(fd, LOCK_EX) == 0 && fstat(fd, &ours) == 0 && lstat(path, &there) == 0 &&
        ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
        unlink(path);
}

struct live_file *live_file_map(void) {
    char path[PATH_MAX];
    if (!find_path(path))
        return NULL;
    struct live_file *file = NULL;
    bool damaged = true;
    for (int tries = 0; damaged && tries < TRIES; tries++) {
        damaged = false;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return NULL;
        file = map_file(fd, &damaged);
        /* In the runtime folder the name is ours: a damaged file, or another release's, would keep back all
         * figures for good. */
        damaged = damaged && !chosen_path();
        if (damaged)
            remove_file(path, fd);
        close(fd);
    }
    return file;
}
