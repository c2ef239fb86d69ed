/* NVML's side of the figures: sums over the processes that live. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct live_use {
    int pid;
    uint64_t memory;
};

/* All of these work, with zeros, when there is no file. */
uint64_t live_read_memory(int device);
uint64_t live_read_busy_ns(int device);
bool live_read_lost(int device);
/* The processes that hold memory or run a kernel there; returns how many, and fills in at most `most`. */
unsigned live_read_uses(int device, struct live_use *uses, unsigned most);
