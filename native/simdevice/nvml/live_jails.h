/* The figures of processes in jails, which do not see the common file: each has one of its own, in the folder
 * beside it, named after its owner. What is in it is that process's word: it is read, never mapped, and
 * bounded. */
#pragma once
#include "live_read.h"

struct live_figures {
    int pid;
    uint64_t memory, busy_since;
};

/* The figures of each of them for a device; returns how many, `most` at most. Not thread-safe. */
unsigned live_jails(int device, uint64_t now, struct live_figures *figures, unsigned most);
/* Of all of them, those that are gone included. */
uint64_t live_jails_busy_ns(int device);
