/* The memfd is sealed at its size, so that whoever maps it is safe from SIGBUS whatever the others do, and
 * its name says whose memory it is. */
#define _GNU_SOURCE
#include "shareable.h"
#include "later.h"
#include "log.h"
#include "wire/file_limit.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAME  "gpuferry-sim-"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20 /* a system may set it on every memfd; it changes nothing here */
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Every piece of memory is an open file. */
static void allow_many_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            sim_message(SIM_LOG_INFO, "cannot raise the limit of open files");
    }
}

void sim_shareable_failed(void) {
    if (errno == EFBIG)
        sim_message(SIM_LOG_ERROR,
                    "no memory: it is a file here, and files may not be that large (ulimit -f)");
    else
        sim_message(SIM_LOG_INFO, "no shareable memory: %m");
}

static int checked(int fd) {
    if (fd < 0)
        sim_shareable_failed();
    return fd;
}

int sim_shareable_new(const char *prefix, const struct sim_device *device, uint64_t size) {
    char name[128], uuid[SIM_UUID_TEXT];
    GF_FILE_LIMIT_FAILS;
    pthread_once(&once, allow_many_files);
    sim_device_uuid_text(device->machine_ordinal, uuid);
    snprintf(name, sizeof name, NAME "%s%s", prefix, uuid);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 && sim_later_wait()) /* for descriptors that were given back */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    checked(fd);
    if (fd >= 0 && (ftruncate(fd, (off_t)size) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0)) {
        checked(-1);
        close(fd);
        return -1;
    }
    return fd;
}

int sim_shareable_again(int fd) {
    pthread_once(&once, allow_many_files);
    int again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (again < 0 && sim_later_wait())
        again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return checked(again);
}

/* What stands behind the prefix in the name of the open file; NULL: it is another file. */
static const char *read_name(const char *path, const char *prefix, char *name, size_t size) {
    char begin[128];
    snprintf(begin, sizeof begin, "/memfd:" NAME "%s", prefix);
    ssize_t length = readlink(path, name, size - 1);
    if (length < 0)
        return NULL;
    name[length] = '\0';
    return strncmp(name, begin, strlen(begin)) == 0 ? name + strlen(begin) : NULL;
}

bool sim_shareable_is(const char *path, const char *prefix) {
    char name[160];
    return read_name(path, prefix, name, sizeof name) != NULL;
}

/* The device that the name of the open file says. */
static bool find_device(int fd, const char *prefix, struct sim_device **device) {
    char path[32], name[160], uuid[SIM_UUID_TEXT];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *said = read_name(path, prefix, name, sizeof name);
    *device = NULL;
    for (int i = 0; said && i < sim_device_count() && !*device; i++) {
        sim_device_uuid_text(sim_device_at(i)->machine_ordinal, uuid);
        if (strncmp(said, uuid, strlen(uuid)) == 0)
            *device = sim_device_at(i);
    }
    return said != NULL;
}

bool sim_shareable_check(int fd, const char *prefix, struct sim_device **device, uint64_t *size) {
    struct stat status;
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
    if (seals < 0 || (seals & ~F_SEAL_EXEC) != SEALS || flags < 0 || (flags & O_ACCMODE) != O_RDWR)
        return false;
    /* not huge pages of the system's pool, which may run out under a mapping */
    if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC || fstat(fd, &status) != 0)
        return false;
    *size = (uint64_t)status.st_size;
    return *size && find_device(fd, prefix, device);
}
