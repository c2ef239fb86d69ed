#include "mappings.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of all mappings a quarter. Too near to the limit for anything else to be refused: so many. */
enum { SHARE = 4, NEAR = 64, USUAL = 65530 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t most = USUAL;
static _Atomic uint32_t guards;
static _Atomic bool guards_lack; /* whoever needed some last, got none */
static _Atomic size_t private;

static void init(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file == NULL)
        return;
    char line[32];
    if (fgets(line, sizeof line, file) != NULL) {
        unsigned long long read = strtoull(line, NULL, 10);
        most = read < UINT32_MAX ? (uint32_t)read : UINT32_MAX;
    }
    fclose(file);
}

bool sim_guards_take(uint32_t count, bool needed) {
    pthread_once(&once, init);
    bool taken = atomic_fetch_add(&guards, count) + count <= most / SHARE;
    if (!taken)
        sim_guards_give(count);
    if (needed)
        atomic_store(&guards_lack, !taken);
    return taken;
}

void sim_guards_give(uint32_t count) {
    atomic_fetch_sub(&guards, count);
}

bool sim_guards_are_short(void) {
    pthread_once(&once, init);
    return atomic_load(&guards) > most / SHARE / 2;
}

static bool is_limited(int kind, unsigned long long *bytes) {
    struct rlimit limit;
    if (getrlimit(kind, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    *bytes = limit.rlim_cur;
    return true;
}

bool sim_private_take(size_t size) {
    unsigned long long limit;
    size_t taken = atomic_fetch_add(&private, size) + size;
    if (!is_limited(RLIMIT_DATA, &limit) || taken <= limit / 4 * 3)
        return true;
    sim_private_give(size);
    return false;
}

bool sim_private_is_short(void) {
    unsigned long long limit;
    return is_limited(RLIMIT_DATA, &limit) && atomic_load(&private) > limit / 4;
}

void sim_private_give(size_t size) {
    atomic_fetch_sub(&private, size);
}

/* Without memory of its own, for there may be none. */
static uint32_t count_mappings(void) {
    char piece[4096];
    uint32_t count = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t size; file >= 0 && (size = read(file, piece, sizeof piece)) > 0;)
        for (ssize_t i = 0; i < size; i++)
            count += piece[i] == '\n';
    if (file >= 0)
        close(file);
    return count;
}

void sim_mapping_refused(char *reason, size_t size) {
    unsigned long long limit;
    pthread_once(&once, init);
    uint32_t count = count_mappings();
    if (count + NEAR >= most)
        snprintf(
            reason, size,
            "the process has %u mappings of memory, of which the system allows %u: raise vm.max_map_count "
            "(sysctl -w vm.max_map_count=%llu)",
            count, most, 4ull * most);
    else if (atomic_load(&guards_lack))
        snprintf(
            reason, size,
            "guards of stacks, which a kernel that recurses needs here, have their part of the %u mappings "
            "that the system allows a process: raise vm.max_map_count (sysctl -w vm.max_map_count=%llu), or "
            "launch fewer threads at once",
            most, 4ull * most);
    else if (is_limited(RLIMIT_DATA, &limit))
        snprintf(
            reason, size,
            "the process may have %llu MiB of private memory: raise its limit (ulimit -d, of API servers "
            "--jail-memory), or launch fewer threads at once",
            limit >> 20);
    else if (is_limited(RLIMIT_AS, &limit))
        snprintf(reason, size, "the process may have %llu MiB of addresses: raise its limit (ulimit -v)",
                 limit >> 20);
    else
        snprintf(reason, size, "the system gives no more memory: free some, or launch fewer threads at once");
}
