#include "live_read.h"
#include "live_file.h"
#include "live_jails.h"
#include <pthread.h>
#include <stddef.h>

#define TRUST_NS UINT64_C(100000000) /* how long an owner that lived is believed to live on */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct live_file *file;
static struct {
    uint64_t owner, checked_ns;
    bool lives;
} known[LIVE_PROCESSES];

/* Lock held. */
static bool lives(int i, uint64_t now) {
    uint64_t owner = atomic_load(&file->owners[i]);
    if (!owner || owner & LIVE_CLAIMING)
        return false;
    bool dead = known[i].owner == owner && !known[i].lives;
    if (dead || (known[i].owner == owner && now - known[i].checked_ns < TRUST_NS))
        return known[i].lives;
    known[i].owner = owner;
    known[i].checked_ns = now;
    known[i].lives = live_owner(live_owner_pid(owner)) == owner;
    return known[i].lives;
}

static struct live_file *open_file(void) {
    if (!file)
        file = live_file_map();
    return file;
}

struct totals {
    uint64_t memory, busy_ns;
    unsigned uses;
};

static void add(struct totals *totals, const struct live_figures *of, uint64_t now, struct live_use *uses,
                unsigned most) {
    totals->memory += of->memory;
    if (of->busy_since && of->busy_since < now)
        totals->busy_ns += now - of->busy_since;
    if (!of->memory && !of->busy_since)
        return;
    if (totals->uses < most)
        uses[totals->uses] = (struct live_use){of->pid, of->memory};
    totals->uses++;
}

/* Lock held. */
static void add_jails(struct totals *totals, int device, uint64_t now, struct live_use *uses, unsigned most) {
    static struct live_figures figures[LIVE_PROCESSES];
    unsigned count = live_jails(device, now, figures, LIVE_PROCESSES);
    for (unsigned i = 0; i < count; i++)
        add(totals, &figures[i], now, uses, most);
    totals->busy_ns += live_jails_busy_ns(device);
}

static struct totals add_up(int device, struct live_use *uses, unsigned most) {
    struct totals totals = {0};
    pthread_mutex_lock(&lock);
    uint64_t now = live_now_ns();
    for (int i = 0; open_file() && i < LIVE_PROCESSES; i++) {
        if (!lives(i, now))
            continue;
        struct live_figures figures = {
            .pid = live_owner_pid(known[i].owner),
            .memory = atomic_load(&file->processes[i].devices[device].memory),
            .busy_since = atomic_load(&file->processes[i].devices[device].busy_since),
        };
        add(&totals, &figures, now, uses, most);
    }
    if (file)
        totals.busy_ns += atomic_load(&file->devices[device].busy_ns);
    add_jails(&totals, device, now, uses, most);
    pthread_mutex_unlock(&lock);
    return totals;
}

uint64_t live_read_memory(int device) {
    return add_up(device, NULL, 0).memory;
}

uint64_t live_read_busy_ns(int device) {
    return add_up(device, NULL, 0).busy_ns;
}

bool live_read_lost(int device) {
    pthread_mutex_lock(&lock);
    bool lost = open_file() && atomic_load(&file->devices[device].lost);
    pthread_mutex_unlock(&lock);
    return lost;
}

unsigned live_read_uses(int device, struct live_use *uses, unsigned most) {
    return add_up(device, uses, most).uses;
}
