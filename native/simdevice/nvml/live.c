#include "live.h"
#include "live_file.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static struct live_file *file;
/* where the figures go when there is no file, and in a process that was forked from ours: it has no driver,
 * and must not touch its parent's entry */
static struct live_process nowhere;
static struct live_process *mine = &nowhere;

static struct {
    pthread_mutex_t lock;
    unsigned running;
} kernels[LIVE_DEVICES];

static void after_fork_in_child(void) {
    mine = &nowhere;
    file = NULL;
}

static struct live_process *claim(uint64_t owner) {
    for (int i = 0; i < LIVE_PROCESSES; i++) {
        uint64_t other = atomic_load(&file->owners[i]);
        if (other && live_owner(live_owner_pid(other)) == (other & ~LIVE_CLAIMING))
            continue;
        if (!atomic_compare_exchange_strong(&file->owners[i], &other, owner | LIVE_CLAIMING))
            continue;
        if (!live_has_room(&file->processes[i], sizeof file->processes[i])) {
            atomic_store(&file->owners[i], 0);
            return NULL;
        }
        memset(&file->processes[i], 0, sizeof file->processes[i]);
        atomic_store(&file->owners[i], owner);
        return &file->processes[i];
    }
    return NULL;
}

void sim_live_start(void) {
    for (int i = 0; i < LIVE_DEVICES; i++)
        pthread_mutex_init(&kernels[i].lock, NULL);
    uint64_t owner = live_owner(getpid());
    file = owner ? live_file_map() : NULL;
    struct live_process *entry = file ? claim(owner) : NULL;
    if (entry)
        mine = entry;
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

void sim_live_memory(int device, int64_t bytes) {
    atomic_fetch_add_explicit(&mine->devices[device].memory, (uint64_t)bytes, memory_order_relaxed);
}

void sim_live_kernel(int device, bool begins) {
    pthread_mutex_lock(&kernels[device].lock);
    _Atomic uint64_t *since = &mine->devices[device].busy_since;
    if (begins && kernels[device].running++ == 0) {
        atomic_store(since, live_now_ns());
    } else if (!begins && --kernels[device].running == 0) {
        uint64_t busy = live_now_ns() - atomic_exchange(since, 0);
        if (file)
            atomic_fetch_add(&file->devices[device].busy_ns, busy);
    }
    pthread_mutex_unlock(&kernels[device].lock);
}
