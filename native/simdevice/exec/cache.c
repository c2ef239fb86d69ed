#define _GNU_SOURCE
#include "cache.h"
#include "wire/file_limit.h"
#include "wire/sha256.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much the cache may hold is $GPUFERRY_SIM_CACHE_BYTES. It is looked at with the first store of a
 * process, and again when that has written this part of it. What is larger than that is not kept. */
enum { PARTS = 16 };
static const uint64_t DEFAULT_BYTES = 1ull << 30;

struct file_header {
    char magic[8];
    uint64_t size;
    uint8_t digest[32];
    uint8_t reserved[16];
};
static const char MAGIC[8] = {'G', 'F', 'S', 'I', 'M', 'C', '0', '1'};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char folder[PATH_MAX - 128]; /* empty: nowhere to write */
static uint64_t allowed;            /* bytes of all files */

static bool make_folders(char *path) {
    for (char *p = path + 1; *p != '\0'; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0777);
            *p = '/';
        }
    mkdir(path, 0700);
    return access(path, R_OK | W_OK | X_OK) == 0;
}

/* The files are code that this process will run: nobody else may be able to write them. */
static bool is_private(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Made by whoever started us, for all whom he trusts with each other's code: a group has it. */
static bool is_shared(void) {
    const char *setting = getenv("GPUFERRY_SIM_CACHE_SHARED");
    return setting != NULL && strcmp(setting, "1") == 0;
}

static bool use(const char *base, const char *rest) {
    if (base == NULL || base[0] != '/' ||
        (size_t)snprintf(folder, sizeof folder, "%s%s", base, rest) >= sizeof folder)
        return false;
    return make_folders(folder) && (is_shared() || is_private(folder));
}

static uint64_t allowed_bytes(void) {
    const char *setting = getenv("GPUFERRY_SIM_CACHE_BYTES");
    char *end;
    uint64_t bytes = setting != NULL ? strtoull(setting, &end, 10) : 0;
    return setting != NULL && end != setting && *end == '\0' ? bytes : DEFAULT_BYTES;
}

static void find_folder(void) {
    char temporary[64];
    allowed = allowed_bytes();
    snprintf(temporary, sizeof temporary, "/tmp/gpuferry-ptx-%u", (unsigned)geteuid());
    if (!use(getenv("GPUFERRY_SIM_CACHE"), "") && !use(getenv("XDG_CACHE_HOME"), "/gpuferry/ptx") &&
        !use(getenv("HOME"), "/.cache/gpuferry/ptx") && !use(temporary, ""))
        folder[0] = '\0';
}

static bool is_sound(const struct file_header *header, size_t size) {
    uint8_t digest[32];
    if (size < sizeof *header || memcmp(header->magic, MAGIC, sizeof MAGIC) != 0 ||
        header->size != size - sizeof *header)
        return false;
    gf_sha256(header + 1, header->size, digest);
    return memcmp(digest, header->digest, sizeof digest) == 0;
}

void sim_cache_name(const uint8_t key[32], const char *suffix, char name[SIM_CACHE_NAME]) {
    for (int i = 0; i < 32; i++)
        snprintf(name + 2 * i, 3, "%02x", key[i]);
    snprintf(name + 64, SIM_CACHE_NAME - 64, "%s", suffix);
}

bool sim_cache_load(const char *name, struct sim_blob *blob) {
    char path[PATH_MAX];
    pthread_once(&once, find_folder);
    if (folder[0] == '\0')
        return false;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return false;
    struct stat status;
    struct file_header *header = MAP_FAILED;
    if (fstat(file, &status) == 0 && status.st_size > 0)
        header = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    bool loaded = header != MAP_FAILED && is_sound(header, (size_t)status.st_size);
    if (loaded) {
        futimens(file, NULL); /* the sweep removes what was not used for longest */
        *blob =
            (struct sim_blob){(const uint8_t *)(header + 1), header->size, header, (size_t)status.st_size};
    } else {
        if (header != MAP_FAILED)
            munmap(header, (size_t)status.st_size);
        unlink(path);
    }
    close(file);
    return loaded;
}

struct entry {
    char name[100];
    uint64_t bytes;
    struct timespec used;
};

static int older(const void *a, const void *b) {
    const struct timespec *x = &((const struct entry *)a)->used, *y = &((const struct entry *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Removes the least recently used files until three quarters of what is allowed remain. */
static void sweep(void) {
    DIR *directory = opendir(folder);
    if (directory == NULL)
        return;
    struct entry *entries = NULL;
    size_t count = 0, capacity = 0;
    uint64_t total = 0;
    for (struct dirent *found; (found = readdir(directory)) != NULL;) {
        struct stat status;
        if (strlen(found->d_name) >= sizeof entries->name ||
            fstatat(dirfd(directory), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(status.st_mode))
            continue;
        if (count == capacity) {
            struct entry *grown = realloc(entries, (capacity = 2 * capacity + 64) * sizeof *entries);
            if (grown == NULL)
                break;
            entries = grown;
        }
        snprintf(entries[count].name, sizeof entries->name, "%s", found->d_name);
        entries[count].bytes = (uint64_t)status.st_blocks * 512;
        entries[count].used = status.st_mtim;
        total += entries[count++].bytes;
    }
    if (total > allowed) {
        qsort(entries, count, sizeof *entries, older);
        for (size_t i = 0; i < count && total > allowed / 4 * 3; i++)
            if (unlinkat(dirfd(directory), entries[i].name, 0) == 0)
                total -= entries[i].bytes;
    }
    free(entries);
    closedir(directory);
}

static bool write_all(int file, const void *data, size_t size) {
    GF_FILE_LIMIT_FAILS;
    const uint8_t *p = data;
    while (size > 0) {
        ssize_t written = write(file, p, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        p += written;
        size -= (size_t)written;
    }
    return true;
}

/* Written aside and renamed: a reader sees a whole file or none. */
void sim_cache_store(const char *name, const void *data, size_t size) {
    static _Atomic uint64_t unswept = UINT64_MAX / 2;
    char path[PATH_MAX], aside[PATH_MAX];
    pthread_once(&once, find_folder);
    if (folder[0] == '\0' || size > allowed / PARTS)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(aside, sizeof aside, "%s/.new-XXXXXX", folder);
    int file = mkostemp(aside, O_CLOEXEC);
    if (file < 0)
        return;
    struct file_header header = {.size = size};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    gf_sha256(data, size, header.digest);
    if (is_shared())
        fchmod(file, 0660);
    bool written = write_all(file, &header, sizeof header) && write_all(file, data, size);
    close(file);
    if (!written || rename(aside, path) != 0)
        unlink(aside);
    uint64_t blocks = (size + sizeof header + 4095) / 4096 * 4096; /* a file takes whole blocks */
    if (atomic_fetch_add(&unswept, blocks) + blocks > allowed / PARTS) {
        atomic_store(&unswept, 0);
        sweep();
    }
}

void sim_blob_free(struct sim_blob *blob) {
    if (blob->mapped != 0)
        munmap(blob->memory, blob->mapped);
    else
        free(blob->memory);
    *blob = (struct sim_blob){0};
}
