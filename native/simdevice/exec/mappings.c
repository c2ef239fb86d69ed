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

bool sim_guards_take(uint32_t count) {
    pthread_once(&once, init);
    if (atomic_fetch_add(&guards, count) + count <= most / SHARE)
        return true;
    sim_guards_give(count);
    return false;
}

void sim_guards_give(uint32_t count) {
    atomic_fetch_sub(&guards, count);
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
    struct rlimit space;
    pthread_once(&once, init);
    uint32_t count = count_mappings();
    if (count + NEAR >= most)
        snprintf(
            reason, size,
            "the process has %u mappings of memory, of which the system allows %u: raise vm.max_map_count "
            "(sysctl -w vm.max_map_count=%llu)",
            count, most, 4ull * most);
    else if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        snprintf(reason, size, "the process may have %llu MiB of addresses: raise its limit (ulimit -v)",
                 (unsigned long long)space.rlim_cur >> 20);
    else
        snprintf(reason, size, "the system gives no more memory: free some, or launch fewer threads at once");
}
